"""`gpushare validate` on a node: checks driver, toolkit, node part, MPS and a real pod, in this order.

`rules` decides, out of what the other files have read. The report for people about all nodes is `ctl/validate`.
"""
