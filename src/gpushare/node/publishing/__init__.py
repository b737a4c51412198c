"""What is published about this node: its GPUs, its capacity, its unhealthy GPUs, and which pods have started.

`desired` works out what the node object has to say; the other files write it and keep it up to date.
"""
