"""Events of the stand-ins, as the components they stand for would write them: who did what, for `kubectl describe`.

An event is one object; nobody counts repetitions here.
"""

from gpushare.devcluster.apiserver import registry
from gpushare.devcluster.apiserver.kinds import table
from gpushare.devcluster.apiserver.kinds.table import Kind
from gpushare.devcluster.apiserver.status import Object

EVENTS = table.BY_RESOURCE["events"]


class Announcer:
    """Speaks as one component. A namespace that is gone hears nothing."""

    def __init__(self, to: registry.Registry, component: str) -> None:
        self._registry, self._component = to, component

    def say(
        self, kind: Kind, about: Object, reason: str, message: str, *, part: str = "", host: str = "", type_: str = ""
    ) -> None:
        """`part` is the field of the object it is about, `host` the node that speaks."""
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
