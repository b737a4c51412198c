"""Who holds what on which GPU: the one thing that changes.

`ledger` changes it, `state` is what it is made of, `questions` is what it is asked, `answers` are the answers it keeps.
"""
