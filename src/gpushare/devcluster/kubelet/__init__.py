"""Simulated kubelets: pods that are bound start, run and end, and device plugins are asked as kubelet 1.36 asks them.

Nothing runs. `kubelet` is the life of pods, `device_manager` kubelet's rules for devices, faults included.
"""
