"""What a running component tells the outside: log lines, metrics, and errors that a person can act on.

One folder, so that every component says the same thing in the same form: a log line is a JSON object with fields to
filter by, a latency has the same buckets everywhere, and an error always carries its cause and its way out. It stands
beside `kube` and above `core`, which stays silent: a decision returns its reason, and the component that asked says it.
"""
