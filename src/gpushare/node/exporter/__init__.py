"""What GPUs do, for Prometheus: one page, with NVIDIA's names for each GPU and our own for each container.

`page` writes it, `counters` reads which of NVIDIA's names are wanted. `kube/scraping` serves it to Prometheus.
"""
