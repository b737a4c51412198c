"""What GPUs do, read from the `GPUNode` of each node, for the commands that show it.

A cluster may have no such objects, a user may not be allowed to read them, and one of them may not be as it should be:
then what those GPUs do is unknown, and nothing is said about it. They are read in a thread, beside the rest of the
cluster: through kubectl each request starts a program.
"""

import threading
from collections.abc import Mapping
from urllib.parse import quote

import msgspec

from gpushare.core.facts import objects, vitals
from gpushare.core.facts.vitals import FullStatus, GpuVitals, Status
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.ledger.loads import Measured
from gpushare.obs.errors import UserError
from gpushare.view.source import Source

PATH = f"/apis/{vitals.GROUP}/{vitals.VERSION}/{vitals.PLURAL}"
# From the API server's cache: reading a thousand from etcd takes seconds, and these figures say themselves how old they
# are.
ALL = f"{PATH}?resourceVersion=0"


class _Items(objects.Struct):
    """Each is decoded by itself: one that cannot be read must not hide the others."""

    items: list[msgspec.Raw] | None = None


class Reading:
    """A request under way. `node`: the only one that is wanted; else all are."""

    def __init__(self, source: Source, node: str = "") -> None:
        self._source, self._node = source, node
        self._found: dict[str, FullStatus] = {}
        # A daemon: where the cluster cannot be read for another reason, nobody waits for this.
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def found(self) -> dict[str, FullStatus]:
        """What was found, by name of the node."""
        self._thread.join()
        return self._found

    def _read(self) -> None:
        path = f"{PATH}/{quote(self._node, safe='')}" if self._node else ALL
        try:
            body = self._source.get(path)
            listed = [msgspec.Raw(body)] if self._node else msgspec.json.decode(body, type=_Items).items or []
        except (UserError, msgspec.MsgspecError, UnicodeDecodeError):
            return
        self._found = {name: status for name, status in map(_decoded, listed) if name}


def measure(ledger: Ledger, found: Mapping[str, Status], now: float) -> None:
    """Tells a ledger what is fresh. Its time is `now`."""
    for node, status in found.items():
        age = vitals.age(status, now)
        if age is not None and vitals.is_fresh(status, now):
            gpus: dict[str, GpuVitals] = {gpu.uuid: gpu for gpu in status.gpus or ()}
            ledger.measure(node, Measured(now - max(age, 0.0), gpus, not status.containers_unknown))


def _decoded(item: msgspec.Raw) -> tuple[str, FullStatus]:
    try:
        decoded = msgspec.json.decode(item, type=vitals.FullGpuNode)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return "", FullStatus()
    return decoded.metadata.name, decoded.status
