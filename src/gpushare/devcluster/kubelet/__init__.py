"""Simulated kubelets: pods that are bound start, run and end, and device plugins are asked as kubelet 1.36 asks them.

Nothing runs. `pod_life` is the life of one pod, `device_manager` has kubelet's rules for devices, with its faults.
"""
