"""Events of controllers and kubelet, as the real ones write them, for `kubectl describe`.

Every event is an object of its own: repetitions are not counted.
"""

from gpushare.devcluster.apiserver.kinds import table
from gpushare.devcluster.apiserver.kinds.table import Kind
from gpushare.devcluster.apiserver.registry import Registry
from gpushare.devcluster.apiserver.status import Object

EVENTS = table.BY_RESOURCE["events"]


class EventWriter:
    """Writes as one component. In a namespace that is gone nothing is written."""

    def __init__(self, registry: Registry, component: str) -> None:
        self._registry, self._component = registry, component

    def write(
        self, kind: Kind, about: Object, reason: str, message: str, *, part: str = "", host: str = "", type_: str = ""
    ) -> None:
        """`part`: the field of the object that the event is about. `host`: the node that writes it."""
        meta, now = about["metadata"], self._registry.now()
        if self._registry.store.get("namespaces", meta["namespace"]) is None:
            return
        subject = {"kind": kind.kind, "apiVersion": kind.api_version, "resourceVersion": meta["resourceVersion"]}
        subject |= {field: meta[field] for field in ("name", "namespace", "uid")}
        event = {
            "metadata": {"generateName": f"{meta['name']}."},
            "involvedObject": subject | ({"fieldPath": part} if part else {}),
            "reason": reason,
            "message": message,
            "type": type_ or "Normal",
            "source": {"component": self._component} | ({"host": host} if host else {}),
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        self._registry.create(EVENTS, meta["namespace"], event)
