"""`gpushare demo`: the whole thing at work on one machine, without a cluster, in a minute.

The nodes, their GPUs and the control plane are stand-ins (`devcluster`) and say so; the extender is the real one, a
process of its own, asked over HTTP. Put together here from the components, so this folder stands above them.
"""
