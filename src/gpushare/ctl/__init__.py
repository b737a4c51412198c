"""What people type: `gpushare inspect` and `gpushare why`, also as kubectl plugins.

Each reads the cluster once, lets the core decide, and shows what it says. Nothing here writes to a cluster.
"""
