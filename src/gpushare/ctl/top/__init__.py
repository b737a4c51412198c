"""`gpushare top`: what GPUs do right now, in a terminal.

`command` runs it, `rows` works out what each GPU and pod uses, `page` draws that, `keys` are those people press.
"""
