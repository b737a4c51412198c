"""`gpushare install-scheduler`: tells a kube-scheduler that runs as a static pod to ask the extender.

`manifest` reads the static pod, `configuration` says what the scheduler shall read, `edit` changes the text of the
manifest and nothing else of it, `plan` puts the three together without touching a file. `store` keeps the backup and
moves files into place, `cluster` asks the API server, `app` goes through the steps. The manifest is replaced by one
rename, and each configuration has a file name of its own: whenever the command is killed, the scheduler that runs has
all it needs, and the next run or `--revert` knows from the record where things stand.
"""
