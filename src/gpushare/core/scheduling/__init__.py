"""One pod and all nodes. Read `life` first: the life of a pod, top to bottom.

`ranking` says which node is best, `preempt` who is evicted, `wakeups` (with `wake_round`) who is woken, `patience`
(with `kept_place`) whose turn it is to have GPUs kept, `pending` which pods are not bound yet. The extender calls this,
and a simulator can: nothing here knows HTTP or a clock.
"""
