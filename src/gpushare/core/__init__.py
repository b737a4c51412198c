"""Every decision gpushare takes, as functions from data to data.

No I/O, no clock, no logging: time comes in as a number. What runs in the extender today runs unchanged in tests,
in `gpushare why` and in a simulator. That is why this folder may import nothing of the others.

Each of its folders stands on those before it: `facts` (what is asked, what is offered), `placement` (one request and
one node), `annotations` (what nodes and pods say), `ledger` (who holds what), `scheduling` (all nodes), `explain`.
"""
