"""An embedded cluster: stand-ins for API server, controllers, kubelet and scheduler, and a proxy that makes faults.

With it gpushare can be tried without a cluster, and rare faults of a real cluster can be tested in milliseconds. It is
not a Kubernetes. The same behaviour tests run against a real control plane (`tests/contracts`), so that the stand-ins
behave alike.

`apiserver` has seven kinds, with the rules of kube-apiserver 1.36 that gpushare and kubectl depend on: resource
versions, watches, conflicts, bindings, graceful deletion, quantities, tables. It refuses the rest with a proper Status.
`cluster` runs it with small `controllers` for Deployments and Jobs and with a simulated `kubelet`. `scheduler` stands
in for kube-scheduler. `faults` is a proxy in front of this or a real API server; it drops, delays, repeats and refuses
by a seeded plan.
"""
