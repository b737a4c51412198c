"""A cluster at one moment, as data: what `inspect`, `why`, the demo and later pages show is worked out from it.

`source` reads the cluster, `snapshot` keeps it with the ledger the extender would have, `usage` counts who uses what.
"""
