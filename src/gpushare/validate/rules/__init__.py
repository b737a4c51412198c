"""What is read of a machine, and what that means: one file for each check. Pure."""
