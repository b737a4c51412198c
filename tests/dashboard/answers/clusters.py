"""Snapshots of the clusters that tests of commands use, as the dashboard has them; and what its reader may see."""

import json
from typing import Any, Protocol

import msgspec

from gpushare.dashboard.answers.body import Body
from gpushare.view import snapshot, unhealthy, vitals
from gpushare.view.snapshot import NODES, PODS, Items, Node, Snapshot
from gpushare.view.why.pod_details import Pod
from tests.ctl import worlds

NOW = worlds.NOW.timestamp()
COLUMNS: dict[str, Any] = {
    "times": [], "total": [], "granted": [], "used": [], "util": [], "temp": [], "power": [], "shares": [],
    "waiting": {}, "source": "memory", "from": None, "note": "",
}  # fmt: skip


class Source(Protocol):
    def get(self, path: str) -> bytes: ...


def read(source: Source) -> Snapshot:
    """With the pods' details, the GPUs that ConfigMaps list, and what all GPUs do."""
    nodes = msgspec.json.decode(source.get(NODES), type=Items[Node]).items or []
    pods = msgspec.json.decode(source.get(PODS), type=Items[Pod]).items or []
    cluster = snapshot.build(nodes, pods, NOW)
    unhealthy.mark(cluster, source)
    cluster.doing = vitals.Reading(source).found()
    return cluster


def number(uid: str) -> int:
    """Any number that belongs to a pod."""
    return sum(map(ord, uid))


def sent(answer: Body | None) -> Any:
    """An answer as a browser gets it."""
    assert answer is not None
    return json.loads(msgspec.json.encode(answer))
