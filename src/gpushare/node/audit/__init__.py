"""Problems that would otherwise go unnoticed: pods that hold, see or say something else than they were given.

`findings` compares and is pure; `auditor` runs it when something changed and reports.
"""
