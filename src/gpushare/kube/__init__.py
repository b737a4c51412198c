"""Talking to the Kubernetes API server: credentials, requests, lists and watches, events.

Ours and small, because the usual clients build a full object for every pod: a list of 5,000 costs them 10 to 20 seconds
and up to a gigabyte, and slim structs decoded straight from the bytes 0.05 s and 16 MB. What is here is only what the
components use. `auth` finds out where the API server is and who we are, `client` makes single requests, `reflector`
keeps somebody's picture of the cluster true, `events` tells users, `explain` turns failures into the three lines people
read. Nothing here decides anything about GPUs.
"""
