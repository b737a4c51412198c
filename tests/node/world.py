"""A node of the embedded cluster with GPUs that do not exist, and the node component in the same process.

Time is short here: what takes minutes on a real node (recovering, asking the driver again) takes hundredths of a
second, and what is sure to come is awaited, with patience.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
import pytest

from gpushare.core.annotations import node_gpus, pod_gpus
from gpushare.core.facts import names, objects, request
from gpushare.core.facts.model import NodeFacts
from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.gpu import health, simulated
from gpushare.gpu.device import Device
from gpushare.gpu.simulated import Simulated
from gpushare.kube import client, loop
from gpushare.kube.auth import login
from gpushare.node import gpus, part, watches
from gpushare.node.app import Config, Node
from gpushare.node.audit import auditor
from gpushare.node.publishing import publisher
from tests.support import embedded_objects
from tests.support.wait import PATIENCE, eventually

Object = dict[str, Any]

NAME = "gpu-a"
SIZES = (16276, 11178)
CONFIG = Config(NAME, "MiB", "direct", port=0)


def devices(*sizes: int, prefix: str = "GPU") -> list[Device]:
    return [simulated.device(i, f"{prefix}-{i}", size) for i, size in enumerate(sizes)]


def node(name: str = NAME, **resources: str) -> Object:
    """As kubelet registers it: nothing of ours."""
    sizes = {"cpu": "64", "memory": "512Gi", "pods": "250", **resources}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"capacity": sizes, "allocatable": sizes},
    }


def bound(
    server: ApiServer, name: str, *memory: int, on: str | list[str], facts: NodeFacts | None = None, **more: Any
) -> Object:
    """A pod that the extender has bound to this node, each container to the GPU with that uuid."""
    made = embedded_objects.pod(name, *memory, **more)
    facts = facts or published(server)
    seen = request.facts(msgspec.convert(made, objects.Pod), None)
    uuids = [on] * len(memory) if isinstance(on, str) else on
    places = tuple((next(i for i, gpu in enumerate(facts.gpus) if gpu.uuid == uuid),) for uuid in uuids)
    assert seen.request is not None
    written = pod_gpus.write(seen.request, facts, places, extender="0a1b2c3d", nanoseconds=1)  # type: ignore[arg-type]
    made["metadata"]["annotations"] |= written
    made["spec"]["nodeName"] = NAME
    return embedded_objects.create(server, made)


def starts(server: ApiServer, name: str, *containers: str, since: str = "2026-11-15T12:00:00Z") -> None:
    """kubelet has started these containers."""
    statuses = [{"name": c, "containerID": f"containerd://{c}-{since}", "state": {"running": {"startedAt": since}}}
                for c in containers]  # fmt: skip
    embedded_objects.set_status(server, name, phase="Running", containerStatuses=statuses)


def shown(server: ApiServer, name: str = NAME) -> Object:
    """The node as everybody sees it."""
    entry = server.store.get("nodes", name)
    assert entry is not None
    return entry.obj()


def said(server: ApiServer) -> Object | None:
    """What the annotation says; None while there is none."""
    text = (shown(server)["metadata"].get("annotations") or {}).get(names.NODE_GPUS)
    return None if text is None else dict(msgspec.json.decode(text))


def capacity(server: ApiServer) -> tuple[str | None, str | None]:
    has = shown(server)["status"]["capacity"]
    return has.get(names.GPU_MEM), has.get(names.GPU_COUNT)


def published(server: ApiServer) -> NodeFacts:
    facts = node_gpus.read(msgspec.convert(shown(server), objects.Node), frozenset())
    assert facts is not None
    return facts


def health_of(server: ApiServer) -> list[bool]:
    found = said(server)
    return [gpu["ok"] for gpu in found["gpus"]] if found else []


def patch(server: ApiServer, change: Object, subresource: str = "") -> None:
    """What somebody else writes to the node."""
    server.registry.patch(embedded_objects.NODES, "", NAME, embedded_objects.MERGE, change, subresource)


def warnings(server: ApiServer) -> list[tuple[str, str, str]]:
    """Reason, object and text of each Warning."""
    return [(reason, name, text) for kind, reason, name, text in embedded_objects.events(server) if kind == "Warning"]


@contextlib.asynccontextmanager
async def running(
    url: str, backend: Simulated, config: Config = CONFIG, *, timeout: float = client.TIMEOUT
) -> AsyncIterator[Node]:
    """The component, without its process. What it raises is raised here."""
    async with client.connect(login.Access(server=url), timeout=timeout) as api:
        made = Node(config, api, backend)
        async with at_work(made):
            yield made


@contextlib.asynccontextmanager
async def at_work(made: part.Part) -> AsyncIterator[None]:
    """A component that was made. What it raises is raised here."""
    work = asyncio.create_task(made.run())
    try:
        yield
    finally:
        if not work.done():
            work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work


async def refusal(url: str, backend: Simulated, config: Config = CONFIG, *, says: str = "") -> Exception:
    """Why the component ends. Before that it `says` so when it is asked whether it is ready."""
    async with client.connect(login.Access(server=url)) as api:
        made = Node(config, api, backend)
        work = asyncio.create_task(made.run())
        await eventually(lambda: says in made.not_ready())
        with pytest.raises(ExceptionGroup) as caught:
            async with asyncio.timeout(PATIENCE):
                await work
    return part.first(caught.value)


def hasten(monkeypatch: pytest.MonkeyPatch, **others: Mapping[str, float]) -> None:
    """Everything that waits waits a hundredth of the time."""
    monkeypatch.setattr(gpus, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(gpus, "LISTEN_SECONDS", 0.01)
    monkeypatch.setattr(health, "RECOVERY_SECONDS", 0.1)
    monkeypatch.setattr(publisher, "PAUSE", 0.01)
    monkeypatch.setattr(auditor, "SETTLE_SECONDS", 0.01)
    monkeypatch.setattr(loop, "LONGEST_DELAY", 0.2)
    monkeypatch.setattr(part, "START_SECONDS", 0.5)
    monkeypatch.setattr(watches, "TICK", 0.01)
