"""`gpushare demo`: the whole thing at work on one machine, without a cluster, in a minute.

The machines, their GPUs, their kubelets and the control plane are stand-ins (`devcluster`, `gpu.simulated`) and say so.
The extender is the real one, a process of its own, asked over HTTP; so is `gpushare node`, and on one node its device
plugin, asked over kubelet's sockets. Put together here from the components, so this folder stands above them.
"""
