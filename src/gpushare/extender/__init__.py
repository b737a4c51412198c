"""The scheduler extender: tells kube-scheduler which node, and decides which GPU.

kube-scheduler asks it over HTTP for every pod that wants GPU memory. Read `app` first: it makes the parts and runs
them. `watches` writes into the ledger what the API server shows. `server` takes requests, `wire` decodes them, `verbs`
answers from memory, and `binder` makes the one write per pod. `housekeeping` wakes pods that fit now. `events` says why
pods wait. The decisions themselves are in `core/scheduling/life.py`.
"""
