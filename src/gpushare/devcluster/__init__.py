"""Test doubles that stand in for a cluster: an API server in memory, and a proxy that makes any API server misbehave.

Neither is a Kubernetes. `apiserver` answers for five core kinds with the rules of kube-apiserver 1.36 that gpushare
depends on (resource versions, watches, conflicts, bindings, graceful deletion, quantities) and refuses the rest with a
proper Status. `faults` stands before that server or a real one and drops, delays, repeats and refuses by a seeded plan.
They exist so that what a real cluster does once a month can be tested in milliseconds, and the same behaviour tests run
against a real kube-apiserver, so that the double stays honest.
"""
