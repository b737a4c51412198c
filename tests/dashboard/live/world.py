"""A cluster in a few words for the tests of this folder: objects as bytes, as an API server would send them."""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec

from gpushare.core.facts import names, objects
from gpushare.dashboard.live.cluster import Live
from gpushare.dashboard.live.sinks import GpuNode
from gpushare.view import snapshot, unhealthy, vitals
from gpushare.view.snapshot import Node, Snapshot
from gpushare.view.why.pod_details import Pod
from tests.support import builders

NOW = datetime(2026, 11, 15, 12, 30, tzinfo=UTC).timestamp()


class Clock:
    """Time as tests want it: since 1970, and as a clock that only goes forward."""

    def __init__(self, now: float = NOW) -> None:
        self.time = now

    def __call__(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


def pod(*memory: int, **more: Any) -> bytes:
    """`gpus`: the UUIDs of the GPUs of its containers, which its binding wrote."""
    uuids = more.pop("gpus", ())
    more["notes"] = {**more.get("notes", {}), **{f"{names.VISIBLE_PREFIX}{i}": uuid for i, uuid in enumerate(uuids)}}
    return msgspec.json.encode(builders.api_pod(*memory, **more))


def node(*totals: int, zone: str = "", cordoned: bool = False, **more: Any) -> bytes:
    made = builders.node(*totals, **more)
    made.metadata.labels = {"topology.kubernetes.io/zone": zone} if zone else None
    made.spec.unschedulable = cordoned
    return msgspec.json.encode(made)


def container(uid: str, granted: int, used: int | None, **more: Any) -> dict[str, Any]:
    return {"uid": uid, "namespace": "default", "pod": uid.removeprefix("uid-"), "container": "c0",
            "grantedMiB": granted, "usedMiB": used, **more}  # fmt: skip


def gpunode(*gpus: dict[str, Any], name: str = "n", at: float = NOW, **more: Any) -> bytes:
    """`gpus`: what differs from a GPU of that node that says nothing."""
    said = [{"index": i, "uuid": f"GPU-{name}-{i}", **gpu} for i, gpu in enumerate(gpus)]
    when = datetime.fromtimestamp(at, UTC).isoformat()
    return json.dumps({"metadata": {"name": name}, "status": {"sampledAt": when, "gpus": said, **more}}).encode()


def config_map(name: str, gpus: str) -> bytes:
    body = {"metadata": {"name": names.UNHEALTHY_PREFIX + name}, "data": {names.UNHEALTHY_KEY: gpus}}
    return json.dumps(body).encode()


class World:
    """What the API server has, told to a `Live` event by event. `snapshot` is what a command would read of it."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or Clock()
        self.live = Live(self.clock)
        self.pods: dict[str, bytes] = {}
        self.nodes: dict[str, bytes] = {}
        self.gpunodes: dict[str, bytes] = {}
        self.maps: dict[str, bytes] = {}

    def put_pod(self, body: bytes) -> None:
        item = _pods.decode(body)
        self.pods[item.metadata.uid] = body
        self.live.pods.upsert(item)

    def end_pod(self, uid: str) -> None:
        if uid in self.pods:
            self.live.pods.remove(_pods.decode(self.pods.pop(uid)))

    def list_pods(self, *bodies: bytes) -> None:
        """The watch was lost: exactly these are there."""
        self.pods = {}
        for body in bodies:
            self.put_pod(body)
        self.live.pods.relisted(self.pods.keys())

    def put_node(self, body: bytes) -> None:
        item = _nodes.decode(body)
        self.nodes[item.metadata.name] = body
        self.live.nodes.upsert(item)

    def end_node(self, name: str) -> None:
        if name in self.nodes:
            self.live.nodes.remove(_nodes.decode(self.nodes.pop(name)))

    def list_nodes(self, *bodies: bytes) -> None:
        self.nodes = {}
        for body in bodies:
            self.put_node(body)
        self.live.nodes.relisted(self.nodes.keys())

    def put_gpunode(self, body: bytes) -> None:
        item = _gpunodes.decode(body)
        self.gpunodes[item.metadata.name] = body
        self.live.doing.upsert(_gpunodes.decode(body))

    def end_gpunode(self, name: str) -> None:
        if name in self.gpunodes:
            self.live.doing.remove(_gpunodes.decode(self.gpunodes.pop(name)))

    def put_map(self, body: bytes) -> None:
        item = msgspec.json.decode(body, type=objects.ConfigMap)
        self.maps[item.metadata.name] = body
        self.live.unhealthy.upsert(item)

    def list_maps(self, *bodies: bytes) -> None:
        self.maps = {}
        for body in bodies:
            self.put_map(body)
        self.live.unhealthy.relisted(self.maps.keys())

    def snapshot(self) -> Snapshot:
        made = snapshot.build(map(_nodes.decode, self.nodes.values()), map(_pods.decode, self.pods.values()), NOW)
        unhealthy.mark(made, self)
        made.doing = vitals.Reading(self).found()
        return made

    def get(self, path: str) -> bytes:
        """As a source of what is no node and no pod."""
        listed = {unhealthy.PATH: self.maps, vitals.ALL: self.gpunodes}[path]
        return b'{"items":[%s]}' % b",".join(listed.values())


_pods = msgspec.json.Decoder(Pod)
_nodes = msgspec.json.Decoder(Node)
_gpunodes = msgspec.json.Decoder(GpuNode)
