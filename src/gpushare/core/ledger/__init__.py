"""Who holds what on which GPU: the one thing that changes.

`ledger` opens with the states of an allocation. One class in four files: `entries` (what is written), `questions` (what
nodes say to a request), `observed` (what the API server shows), `ledger` (decisions of our own). Nobody outside touches
its dictionaries: `NodeState` and `Holding` are what others read.
"""
