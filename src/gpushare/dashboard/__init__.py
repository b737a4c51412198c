"""`gpushare dashboard`: the cluster in a browser, with why a pod waits and what would help. It reads and never writes.

`live` keeps a copy of the cluster and makes one stream of its changes for everybody, `answers` are the pages as data,
`server` knows who asks and what they may see, `static` is what the browser loads.
"""
