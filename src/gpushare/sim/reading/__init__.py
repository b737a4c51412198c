"""Files become a trace. Every fault is one sentence with the file, the row and the reason."""
