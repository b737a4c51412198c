"""Labels that a program keeps on its own node: applied to the node itself, or through node-feature-discovery (NFD).

Where NFD runs, it is the one who labels nodes: programs tell it by NodeFeature objects what they have found.
"""
