"""Addresses of Services that work on the real node: there is no kube-proxy, so each is led to where it is served."""

import sys

from tests.e2e.harness import network
from tests.e2e.harness.cluster import Cluster

API = "10.0.0.1:443"  # of the API server: what pods on the pod network ask
API_SERVER = "127.0.0.1:6443"
_PREFIX = "forward-"


def lead(cluster: Cluster, name: str, here: str, there: str) -> None:
    """From now on what comes to `here`, an address of a Service, goes to `there`."""
    own = sum(process.name.startswith(_PREFIX) for process in cluster.processes.running)
    network.add(here.partition(":")[0], f"lo:{10 + own}".encode())
    command = (sys.executable, "-m", "tests.e2e.harness.forward", here, there)
    cluster.processes.start(f"{_PREFIX}{name}", *command)


def lead_to_api(cluster: Cluster) -> None:
    lead(cluster, "api", API, API_SERVER)


async def end(cluster: Cluster) -> None:
    for process in [one for one in cluster.processes.running if one.name.startswith(_PREFIX)]:
        await cluster.processes.end(process)
