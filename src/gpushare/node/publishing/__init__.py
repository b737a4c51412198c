"""What the cluster is told about this node: its GPUs, its capacity, its unhealthy GPUs, and which pods have started.

`desired` works out what the node object must say; the other files write it and keep it so.
"""
