"""Policies that compare nodes by what a pod would leave behind there: GPUs, CPU and memory together.

`model` has the words, each policy has a file. Pure. The ledger keeps what they answer until a node changes.
"""
