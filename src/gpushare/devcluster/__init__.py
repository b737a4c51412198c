"""Stand-ins for a cluster: an API server in memory with what kubectl needs around it, and a proxy that misbehaves.

None is a Kubernetes. `apiserver` answers for seven kinds with the rules of kube-apiserver 1.36 that gpushare and
kubectl depend on (resource versions, watches, conflicts, bindings, graceful deletion, quantities, tables) and refuses
the rest with a proper Status. `cluster` runs it with the smallest controllers for Deployments and Jobs and with
simulated kubelets; `scheduler` stands in for kube-scheduler. `faults` stands before that server or a real one and
drops, delays, repeats and refuses by a seeded plan. They exist so that gpushare can be tried without a cluster, and so
that what a real one does once a month can be tested in milliseconds; the same behaviour tests run against a real
control plane, so that the doubles stay honest.
"""
