"""What stands in for Kubernetes in a scenario: time that passes only when something waits, and an API server.

The API server keeps objects as JSON, tells a watcher about each change, takes bindings the way a real one does (at
most one per pod, uid checked, annotations merged in the same write), and fails as told. Used by `world`.
"""

import asyncio
import copy
import selectors
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from gpushare.core.facts import objects
from gpushare.kube import models
from gpushare.kube.errors import ApiError, Unreachable
from tests.support.objects import Object
from tests.support.pod_calls import PodApi

START = 1000.0


class _Skipping(selectors.SelectSelector):
    """Nobody ever waits: time jumps to the next thing that is due."""

    now = START

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "everything waits for something that will never come"
        self.now += max(timeout, 0)
        return super().select(0)


class Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.virtual = _Skipping()
        super().__init__(self.virtual)

    def time(self) -> float:
        return self.virtual.now


class FakeApi(PodApi):
    """`faults`, one per write: see FAULTS. `changed(kind, type, object)` is told about everything that happens."""

    FAULTS = ("answer lost", "request lost", "not sent", "error 500", "error 403", "slow", "ok")

    def __init__(self, changed: Callable[[str, str, Object], None]) -> None:
        super().__init__()
        self.pods: dict[tuple[str, str], Object] = {}
        self.nodes: dict[str, Object] = {}
        self.maps: dict[str, Object] = {}
        self.events: list[models.Event] = []
        self.bindings: list[tuple[str, str]] = []  # those that were carried out
        self.before: dict[str, Object] = {}  # by uid: the pod as it stood before it was bound
        self.faults: deque[str] = deque()
        self.deaf = False  # to wake-ups
        self.writes: Counter[str] = Counter()  # by pod
        self._changed = changed
        self._revision = 0
        self._copy: tuple[dict[tuple[str, str], Object], dict[str, Object], dict[str, Object]] = ({}, {}, {})
        self._restores = 0

    # What happens in the cluster

    def put_pod(self, pod: Object) -> None:
        self._revision += 1
        meta = pod["metadata"]
        self.writes[meta["name"]] += 1
        meta["resourceVersion"] = str(self._revision)
        meta.setdefault("creationTimestamp", f"2026-01-01T00:{self._revision // 60:02}:{self._revision % 60:02}Z")
        self.pods[meta["namespace"], meta["name"]] = pod
        self._tell("pods", "upsert", pod)

    def drop_pod(self, pod: Object) -> None:
        del self.pods[pod["metadata"]["namespace"], pod["metadata"]["name"]]
        self._tell("pods", "remove", pod)

    def put_node(self, node: Object) -> None:
        self.nodes[node["metadata"]["name"]] = node
        self._tell("nodes", "upsert", node)

    def drop_node(self, name: str) -> None:
        self._tell("nodes", "remove", self.nodes.pop(name))

    def put_map(self, name: str, data: Mapping[str, str] | None) -> None:
        self.maps[name] = {"metadata": {"name": name, "namespace": "kube-system"}, "data": data}
        self._tell("maps", "upsert", self.maps[name])

    def drop_map(self, name: str) -> None:
        self._tell("maps", "remove", self.maps.pop(name))

    def back_up(self) -> None:
        self._copy = copy.deepcopy((self.pods, self.nodes, self.maps))

    def copied_pods(self) -> list[Object]:
        return list(self._copy[0].values())

    def restore(self) -> None:
        """All is as it was when it was copied, and nobody is told. What was being written is lost."""
        self.pods, self.nodes, self.maps = copy.deepcopy(self._copy)
        self._restores += 1

    def _tell(self, kind: str, type: str, item: Object) -> None:
        self._changed(kind, type, copy.deepcopy(item))

    # What the extender asks

    async def get_pod(self, namespace: str, name: str) -> objects.Pod | None:
        await asyncio.sleep(0)
        found = self.pods.get((namespace, name))
        return None if found is None else msgspec.json.decode(msgspec.json.encode(found), type=objects.Pod)

    async def bind(self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]) -> None:
        fault = await self._fault()
        pod = self._find(namespace, name, uid)
        if pod["spec"].get("nodeName"):
            raise ApiError(409, "Conflict", f"pod {name} is already assigned to node {pod['spec']['nodeName']!r}")
        if pod["metadata"].get("deletionTimestamp"):
            raise ApiError(409, "Conflict", f"pod {name} is being deleted, cannot be assigned to a host")
        self.before[uid] = copy.deepcopy(pod)
        pod["spec"]["nodeName"] = node
        pod["metadata"]["annotations"] |= annotations
        self.bindings.append((name, node))
        self.put_pod(pod)
        if fault == "answer lost":
            raise Unreachable("the connection broke", sent=True)

    async def patch_pod_annotations(
        self, namespace: str, name: str, uid: str, annotations: Mapping[str, str | None]
    ) -> None:
        if self.deaf:
            raise ApiError(500, "Fault", "the API server is out of order")
        pod = self._find(namespace, name, uid)
        pod["metadata"]["annotations"] |= annotations
        self.put_pod(pod)

    async def create_event(self, event: models.Event) -> None:
        self.events.append(event)

    def _find(self, namespace: str, name: str, uid: str) -> Object:
        pod = self.pods.get((namespace, name))
        if pod is None:
            raise ApiError(404, "NotFound", f'pods "{name}" not found')
        if pod["metadata"]["uid"] != uid:
            raise ApiError(409, "Conflict", f'pods "{name}" has another uid')
        return pod

    async def _fault(self) -> str:
        fault = self.faults.popleft() if self.faults else "ok"
        assert fault in self.FAULTS, f"unknown fault {fault!r}; known are {self.FAULTS}"
        restores = self._restores
        await asyncio.sleep(6 if fault == "slow" else 0)
        if restores != self._restores:
            raise Unreachable("the API server ended", sent=True)
        if fault.startswith("error"):
            raise ApiError(int(fault.split()[1]), "Fault", f"the API server says {fault}")
        if fault in ("request lost", "not sent"):
            raise Unreachable("the connection broke", sent=fault == "request lost")
        return fault
