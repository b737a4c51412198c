"""Labels that say what GPUs a node has, under the names of NVIDIA's GPU Feature Discovery (GFD).

The node part has all the answers already, so there is no program of its own for them. `labels` says what they are, and
is pure; `machine` reads files of the machine; `discovery` keeps the labels on the node.
"""
