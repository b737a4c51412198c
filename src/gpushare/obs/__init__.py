"""What a running component tells the outside: log lines, metrics, and errors that a person can act on.

One folder, so that all components do it in the same form: a log line is a JSON object with fields to filter by, a
latency has the same buckets everywhere, and an error always has its cause and its way out. It is below `kube` and
`gpu`, which raise these errors, and above `core`, which never logs: a decision returns its reason, and the component
logs it.
"""
