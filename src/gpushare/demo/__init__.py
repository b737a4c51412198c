"""`gpushare demo`: the whole thing at work on one machine, without a cluster, in a minute.

Nodes, GPUs, kubelets and the control plane are stand-ins (`devcluster`, `gpu.simulated`), and the demo says so. The
extender is the real one, a process that is asked over HTTP. `gpushare node` is the real one too, and on one node its
device plugin, which is asked over kubelet's sockets.
"""
