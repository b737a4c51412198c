"""A live cluster becomes a trace: `gpushare snapshot`.

`machines` are its nodes with GPUs, `models` says which of them a pod may use, `pods` what it asks, `recording` puts it
together, `tables` writes CSV. Only what a replay needs is kept: no labels, no images, no environment.
"""
