"""Annotations of nodes and pods: each key is read and written in one place.

`node_gpus` is what nodes say, `pod_gpus` what pods say. Amounts never come from pods' annotations: these only choose
GPUs, and count only where they match the spec.
"""
