"""The last check: a real pod that asks for the smallest share, and sees exactly the GPU that it was given."""
