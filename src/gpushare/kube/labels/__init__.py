"""This node's own object, and labels that a program keeps on it: by itself, or through node-feature-discovery (NFD).

Where NFD runs, it is the one who labels nodes: programs tell it by NodeFeature objects what they have found.
"""
