"""This machine: its files, and its driver, which is asked in a process of its own."""
