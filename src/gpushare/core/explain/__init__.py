"""Why a pod waits, where it would fit, and what would help: one answer for `why`, events, conditions and programs.

`verdict` finds the answer, `report` is its form, `ways_out` adds what would help, `event_texts` says it in one
sentence.
"""
