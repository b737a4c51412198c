"""`gpushare finder`: looks for NVIDIA's GPUs among the PCI devices of its node, and labels the node.

It needs neither driver nor root, so it runs on every node: its labels say where everything else has to run.
"""
