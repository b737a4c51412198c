"""Policies that give points: what a GPU does decides which one a pod gets, not only what is free.

Pure. `load` is what is known of a GPU, `settings` what an admin says, `keti` and `metric` the points of a GPU,
`node_score` those of a node, `order` what follows for the GPUs of one node. `facts.policies` has the policies by name.
"""
