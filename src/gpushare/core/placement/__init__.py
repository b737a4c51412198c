"""One request and one node: does it fit, on which GPUs, and if not, why.

`fit` answers with a refusal or None, `gpu_choice` with the GPUs; `search` looks for them within a budget (`cost`). A
`room` is a node at one instant: what is free on each GPU.
"""
