"""A pod and all nodes: which node is best, who is evicted, who is woken, whose turn it is.

The extender calls these functions, and so can a simulator: nothing here knows HTTP or a clock.
"""
