"""The HTTP side of the dashboard: who asks, what they may see, and what is sent.

`guard` refuses what no page of ours sends, `access` knows who somebody is, `routes` answers, `streams` sends changes,
`static` has the files of the browser's part.
"""
