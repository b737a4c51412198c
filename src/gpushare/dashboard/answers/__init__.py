"""The pages as data: each answer is a function of a `Snapshot`, of what else was read, and of what the reader may see.

Pure. Every figure is that of `gpushare inspect -o json` or `gpushare why -o json`, in MiB. Unknown is null, never 0. No
name of a pod, container or namespace is in an answer to somebody who may not list the pods of that namespace. Each
answer has a function that tells which namespaces it is about, so that nobody is asked about more rights than needed.
"""
