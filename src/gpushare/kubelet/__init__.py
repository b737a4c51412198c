"""Speaks kubelet: its messages (`pb`), the names of memory units as devices, and which container has which device.

The node component and the simulated kubelet of the embedded cluster both need this.
"""
