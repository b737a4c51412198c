"""`gpushare snapshot` and `gpushare replay`: try policies on the pods of one's own cluster, without touching it."""
