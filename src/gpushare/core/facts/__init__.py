"""What is asked and what is offered, as data: requests of pods, GPUs of nodes, and every name that goes over the wire.

Read `model` first: it has the words that the rest of the core is written in. `kinds` and `policies` are tables: a new
kind of request, or a new policy, begins there. Nothing here changes over time.
"""
