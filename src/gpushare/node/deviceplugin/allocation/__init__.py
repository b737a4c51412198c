"""Which units of which GPU a container gets, and who holds them. Pure.

`state` is all that is known, `table` who holds what, `plans` what the scheduler intended. `prefer` answers kubelet's
first question, `allocate` its second. Afterwards `correct` corrects the table by kubelet's list, and `pod_annotations`
says which annotations are wrong.
"""
