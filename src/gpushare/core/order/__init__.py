"""Nodes in the order that a policy prefers, kept from call to call: to choose one, take the first that is offered.

Data structures only: `offer` is what a scheduler offers, `ranked` an order, `changes` says which nodes have to be
looked at again, `tables` bounds what is kept. The ledger owns them, `core/scheduling/ranking.py` fills and reads them.
"""
