"""The embedded API server: HTTP, verbs and a store in memory. A stand-in for tests and the demo, not a Kubernetes.

A request goes through `server` (HTTP), `paths` (which object), `writing` or `listing` and `watching`, `registry` (the
verbs) and `store` (objects and their history). `kinds` has the rules of each kind, `tables` what `kubectl get` shows.
"""
