"""The device plugin: gives containers their GPUs on nodes where the binding cannot.

`plugin` wires it. kubelet asks `service` over a socket that `endpoint` keeps registered; `allocation` decides;
afterwards `reconcile` compares the table with what kubelet really gave, and corrects table and annotations.
"""
