"""Where the API server is, who we are, and how we prove it.

`login` decides; `configfile` reads kubeconfigs, `credentials` gets tokens and certificates, `tls` uses them.
"""
