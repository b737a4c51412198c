"""Talking to the Kubernetes API server: credentials, requests, lists and watches, events.

Ours and small, because the usual clients build a full object for every pod: a list of 5,000 costs them 10 to 20 seconds
and up to a gigabyte, and slim structs decoded straight from the bytes 0.05 s and 16 MB. What is here is only what the
components use: `auth` finds the API server and our credentials; `resources` and `requests` describe requests as data,
`client` sends them, and `pod_requests` names those about pods; `reflector` keeps a copy of one kind of object up to
date; `events` tells users; `loop` tries again; `failures` turns a failure into the three lines people read. Nothing
here decides anything about GPUs.
"""
