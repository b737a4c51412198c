"""`gpushare validate`: whether driver, toolkit, node part and a real pod work on a node."""
