"""`gpushare why`: why a pod is Pending, what would make it fit, or where it runs.

`command` runs it, `from_file` does so for pods that exist only in a file, `extender_client` asks a running extender.
The answer itself is made in `view.why`.
"""
