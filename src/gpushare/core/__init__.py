"""Every decision gpushare takes, as functions from data to data.

No I/O, no clock, no logging: time comes in as a number. What runs in the extender today runs unchanged in tests,
in `gpushare why` and in a simulator, which is the reason why this folder may import nothing of the others.
"""
