"""A cluster at one moment, as data: everything that `inspect`, `why` and the demo show is worked out from it.

`kubectl` and `direct` read the cluster, `snapshot` holds it with the ledger the extender would have, `unhealthy` adds
the GPUs that a ConfigMap lists, `usage` counts what each node, GPU and pod was given. `vitals` reads what they do, and
`measured` makes numbers of that.
"""
