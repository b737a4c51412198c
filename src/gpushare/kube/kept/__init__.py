"""Connections that are kept for short writes: a binding for each pod, an event for some.

aiohttp's client costs more than all else that is done for a pod, because it can do anything. These connections can do
one thing: send a POST, and read a short answer. Whoever finds none free waits a little for one: a connection more costs
as much as several requests. If that takes long, and whenever anything is unusual, aiohttp's client does the work.
"""
