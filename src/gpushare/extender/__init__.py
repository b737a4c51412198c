"""The scheduler extender: tells kube-scheduler which node, and decides which GPU.

kube-scheduler asks it over HTTP for every pod that wants GPU memory. `app` wires it; `watches` feed
the ledger; `verbs` answer choose, filter, prioritize and preempt from memory; `binder` makes the one write per pod;
`housekeeping` wakes pods that fit now.
"""
