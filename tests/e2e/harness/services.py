"""Addresses of Services that work on the real node: there is no kube-proxy, so each is led to where it is served."""

import sys

from tests.e2e.harness import network
from tests.e2e.harness.cluster import Cluster

API = "10.0.0.1:443"  # of the API server: what pods on the pod network ask
API_SERVER = "127.0.0.1:6443"
_PREFIX = "forward-"


def announce(*addresses: str) -> None:
    """These are addresses of this machine from now on. Until they lead somewhere, connections are refused."""
    for number, address in enumerate(addresses):
        network.add(address.partition(":")[0], f"lo:{10 + number}".encode())


def lead(cluster: Cluster, name: str, here: str, there: str) -> None:
    """From now on what comes to `here`, an announced address, goes to `there`."""
    command = (sys.executable, "-m", "tests.e2e.harness.forward", here, there)
    cluster.processes.start(f"{_PREFIX}{name}", *command)


def lead_to_api(cluster: Cluster, *more: str) -> None:
    """`more`: addresses that will lead somewhere later."""
    announce(API, *more)
    lead(cluster, "api", API, API_SERVER)


async def end(cluster: Cluster) -> None:
    for process in [one for one in cluster.processes.running if one.name.startswith(_PREFIX)]:
        await cluster.processes.end(process)
