"""`gpushare install-scheduler`: tells a kube-scheduler that runs as a static pod to ask the extender."""
