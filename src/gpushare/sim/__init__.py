"""A cluster that only exists in memory, in virtual time: which policy places a list of pods best?

`trace` has the words, `reading` makes them of files and `recording` of a live cluster. `cluster` is the extender's own
ledger filled with the nodes of a trace, `loading` and `lifetimes` send pods through it, and `showing` writes down what
came of it.
"""
