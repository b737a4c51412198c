"""The cluster as it is now, kept up to date by watches, and as it was in the last 48 hours.

`sinks` take what the watches bring, `cluster` is all of it with one ledger. Once a second `ticks` makes one message of
what changed (`columns`, `delta`), which all browsers get. `history` keeps figures in memory, `prometheus` asks for
older ones, and `past` decides which of them answers.
"""
