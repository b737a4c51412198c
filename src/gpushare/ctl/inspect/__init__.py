"""`gpushare inspect`: GPU memory by node, GPU and pod, and the pods that wait for it."""
