"""What came of a replay: a table for people, JSON and CSV for programs, a picture."""
