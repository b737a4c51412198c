"""An embedded cluster for tests, a client of it, and its objects read from the store, without HTTP."""

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.devcluster.cluster import DevCluster
from gpushare.devcluster.nodes import simulated_node
from tests.support import api_client
from tests.support.api_client import Api, Object

NODES = (simulated_node("gpu-a", "10.0.0.11"), simulated_node("gpu-b", "10.0.0.12", [24268, 11178]))


@contextlib.asynccontextmanager
async def cluster(folder: Path, moment: float = 0.0, **more: Any) -> AsyncIterator[tuple[DevCluster, Api]]:
    """A cluster in which things take no time, and a client of it."""
    async with (
        DevCluster(nodes=NODES, folder=folder, moment=moment, **more) as dev,
        api_client.connect(dev.url) as api,
    ):
        yield dev, api


def objects(server: ApiServer, resource: str = "pods", **labels: str) -> list[Object]:
    """All of them with these labels, by name."""
    entries = server.store.snapshot(resource).entries
    return [entry.obj() for entry in entries if labels.items() <= entry.labels.items()]


def names(server: ApiServer, resource: str = "pods", **labels: str) -> list[str]:
    return [obj["metadata"]["name"] for obj in objects(server, resource, **labels)]


def get(server: ApiServer, namespace: str, name: str, resource: str = "pods") -> Object | None:
    entry = server.store.get(resource, f"{namespace}/{name}")
    return entry.obj() if entry else None


def in_phase(server: ApiServer, namespace: str, name: str, phase: str) -> Callable[[], Object | None]:
    def found() -> Object | None:
        pod = get(server, namespace, name)
        return pod if pod and pod["status"].get("phase") == phase else None

    return found


async def bind_all(server: ApiServer, api: Api, node: str = "gpu-a") -> None:
    """Binds all pods that wait, as a scheduler does."""
    for pod in objects(server):
        if not pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp"):
            assert (await api.bind(pod["metadata"]["name"], node)).code == 201
