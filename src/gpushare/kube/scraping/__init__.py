"""A port for Prometheus, for any component whose other ports Prometheus cannot reach.

`server` listens there, `readers` asks the API server who may read the page, `self_signed` makes a certificate where
none is given. What the page says is the component's own.
"""
