"""Which units of which GPU a container gets, and who holds them: pure, and the part that must never be wrong.

`state` is all that is known, `table` who holds what, `plans` what the scheduler intended. `prefer` answers kubelet's
first question, `allocate` its second; `correct` puts the table right when kubelet says who really has what.
"""
