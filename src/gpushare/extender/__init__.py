"""The scheduler extender: tells kube-scheduler which node, and decides which GPU.

kube-scheduler asks it over HTTP for every pod that wants GPU memory. `app` wires it; `sync` feeds the ledger from
watches; `verbs` answers filter, prioritize and preempt from memory; `binder` makes the one write per pod; `waiting`
sees to it that no pod waits for memory that is free.
"""
