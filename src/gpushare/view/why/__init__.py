"""Why a pod is Pending, what would make it fit, or where it runs: the answer, for every command and page that gives it.

`evidence` gathers what gpushare, kube-scheduler and kubelet know about one pod, `explanation` makes one answer of it,
and `text` says it to people. `files` does this for pods that exist only in a file.
"""
