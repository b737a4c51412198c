"""`gpushare collector`: measures what GPUs do on a node where another process sells them.

`node/observer.py` does the work, as in a node part; here is what is different: nothing is sold or published.
"""
