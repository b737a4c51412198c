"""Speaks to kubelet: its folders (`paths`), its messages (`pb`), the ids of memory units, and who has which device.

The node component and the simulated kubelet of the embedded cluster both use this.
"""
