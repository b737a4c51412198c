"""Pods and nodes of the embedded API server, made, found, changed and deleted from inside, without HTTP.

Objects are plain JSON, as `kubectl create` sends it.
"""

import json
from collections.abc import Sequence
from typing import Any

from gpushare.core.facts import names
from gpushare.devcluster.apiserver.kinds import table
from gpushare.devcluster.apiserver.server import ApiServer
from tests.support import objects

Object = dict[str, Any]

PODS = table.BY_RESOURCE["pods"]
NODES = table.BY_RESOURCE["nodes"]
MERGE = "application/merge-patch+json"


def node(name: str, *totals: int, pin: str = "direct", unit: str = "MiB") -> Object:
    """A node that has published GPUs of these sizes."""
    return {"apiVersion": "v1", "kind": "Node"} | objects.node(name, {"gpus": totals, "pin": pin, "unit": unit})


def uuid(node: str, gpu: int) -> str:
    return f"GPU-{node}-{gpu}"


def pod(
    name: str,
    *memory: int | str,
    init: Sequence[int] = (),
    sidecars: Sequence[int] = (),
    whole: int = 0,
    split: int = 1,
    direct: bool = True,
    priority: int = 0,
) -> Object:
    """One container per amount, and one for `whole` GPUs. `direct`: the admission policy has changed it."""
    containers: Object = {f"c{i}": amount for i, amount in enumerate(memory)}
    if whole:
        containers["whole"] = {"count": whole}
    inits: Object = {f"i{i}": amount for i, amount in enumerate(init)}
    inits |= {f"s{i}": {"mem": amount, "sidecar": True} for i, amount in enumerate(sidecars)}
    words = {"name": name, "containers": containers, "init": inits, "direct": direct, "priority": priority}
    return objects.new(objects.pod(words | ({"split": split} if split > 1 else {})))


UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}


def create(server: ApiServer, made: Object) -> Object:
    kind = table.BY_KIND[made.get("kind", "Pod")]
    created = server.registry.create(kind, made["metadata"].get("namespace", ""), json.loads(json.dumps(made)))
    result: Object = json.loads(created)
    if kind is NODES:
        server.registry.patch(NODES, "", made["metadata"]["name"], MERGE, {"status": made["status"]}, "status")
    return result


def find(server: ApiServer, name: str) -> Object | None:
    entry = server.store.get("pods", f"default/{name}")
    return None if entry is None else entry.obj()


def set_status(server: ApiServer, name: str, **status: Any) -> None:
    server.registry.patch(PODS, "default", name, MERGE, {"status": status}, "status")


def delete(server: ApiServer, name: str, grace: int = 0) -> None:
    server.registry.delete(PODS, "default", name, {"gracePeriodSeconds": grace})


def events(server: ApiServer) -> list[tuple[str, str, str, str]]:
    """Type, reason, object and text of each event."""
    shelf = server.store.shelf("events")
    told = [shelf.entries[key].obj() for key in shelf.keys]
    return [(e["type"], e["reason"], e["involvedObject"]["name"], e["message"]) for e in told]


def woken(server: ApiServer, name: str) -> str | None:
    """When it was last touched, if it was."""
    found = find(server, name)
    assert found is not None
    stamp: str | None = (found["metadata"].get("annotations") or {}).get(names.WOKEN)
    return stamp
