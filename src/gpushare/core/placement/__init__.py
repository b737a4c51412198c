"""One request and one node: does it fit, on which GPUs, and if not, why.

`fit` answers with a refusal or none, `gpu_choice` with the GPUs, `search` looks for them within the budget of `cost`.
A node is a `room`: what is free on each GPU at one instant.
"""
