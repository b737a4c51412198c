"""The GPUs of this node: which there are, how large, and whether they are healthy.

NVIDIA's driver is asked through `nvml`. It may be missing, slow or stuck: every call has a time limit and every failure
is a sentence. What is healthy is decided by `health`, which is pure. `simulated` stands in for the driver in the
embedded cluster, and nowhere else.
"""
