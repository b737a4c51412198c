"""gpushare: many containers share GPUs on Kubernetes, by GPU memory.

`core` decides and knows no I/O; `kube` and `obs` adapt it to the world; `extender` and `devcluster` are what runs.
ARCHITECTURE.md follows one pod through these folders.
"""

__version__ = "0.1.0"
