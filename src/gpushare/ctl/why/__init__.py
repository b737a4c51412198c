"""`gpushare why`: why a pod is Pending, what would make it fit, or where it runs.

`command` runs it. `judgement` puts together what gpushare, kube-scheduler and kubelet say about one pod; `files` does
that for pods that exist only in a file; `text` says it to people.
"""
