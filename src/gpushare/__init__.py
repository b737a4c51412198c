"""gpushare: many containers share GPUs on Kubernetes, by GPU memory.

`core` decides, without I/O. `obs` reports; `kube`, `gpu` and `kubelet` speak to others; `view` reads a cluster.
`extender`, `node` and `ctl` are what runs; `devcluster` stands in for Kubernetes in tests and in `demo`. `cli` starts
one of them. ARCHITECTURE.md follows one pod through these folders.
"""

__version__ = "0.1.0"
