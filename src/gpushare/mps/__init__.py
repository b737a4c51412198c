"""`gpushare mps`: keeps NVIDIA's MPS daemon running on a node, and says how it is.

MPS lets several processes compute on one GPU at the same time, through one server that has the only context on it. A
daemon that hangs or dies is noticed by nobody else: its clients stand still, and kubelet sees only running processes.
"""
