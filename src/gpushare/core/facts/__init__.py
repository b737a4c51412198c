"""What is asked and what is offered, as data: requests of pods, GPUs of nodes, and every name that goes over the wire.

Read `model` first: the words the rest of the core is written in. Nothing here changes over time.
"""
