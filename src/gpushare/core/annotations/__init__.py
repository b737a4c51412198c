"""Annotations of nodes and pods: each key is read and written in one place.

Amounts never come from here: annotations only choose GPUs, and count only where they match the spec.
"""
