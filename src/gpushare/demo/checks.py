"""Checks of what the demo claims: pure functions over the API server's audit log and a snapshot of the cluster.

Each check is one line, `ok` or `FAIL`.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from gpushare.devcluster.apiserver.server import Audit
from gpushare.view.snapshot import Snapshot

EXTENDER = "gpushare"  # its user agent at the API server


class Check(msgspec.Struct):
    ok: bool
    claim: str
    detail: str

    def line(self) -> str:
        return f"{'ok' if self.ok else 'FAIL':<4}  {self.claim:<30} {self.detail}"


class Fullest(msgspec.Struct):
    """The fullest GPU of all snapshots, and the most GPUs that were over-committed in one of them."""

    used: int = 0
    total: int = 1
    where: str = ""
    over: int = 0


def fullest(snapshot: Snapshot, before: Fullest) -> Fullest:
    """With this snapshot taken into account."""
    worst = before
    over = 0
    for state in snapshot.ledger.nodes():
        if state.facts is None:
            continue
        for used, gpu in zip(state.effective().units, state.facts.gpus, strict=True):
            over += used > gpu.total
            if used * worst.total > worst.used * gpu.total:
                worst = Fullest(used, gpu.total, f"{state.name} GPU {gpu.index}")
    return Fullest(worst.used, worst.total, worst.where, max(before.over, over))


def checks(
    snapshot: Snapshot, worst: Fullest, audit: Iterable[Audit], expected: int, stay: Collection[str]
) -> list[Check]:
    """`expected`: pods that were to be placed; `stay`: those that must have a node at the end."""
    ours = [entry for entry in audit if entry.user_agent == EXTENDER and "/events" not in entry.path]
    bindings = [entry for entry in ours if entry.path.endswith("/binding")]
    made = Counter(entry.path for entry in bindings if entry.code == 201)
    conflicts = sum(entry.code == 409 for entry in bindings)
    others = len(ours) - len(bindings)
    used, gpus = _gpus(snapshot)
    bound = {pod.metadata.name for pod in snapshot.pods if pod.spec.node_name}
    lost, twice = len(set(stay) - bound), sum(count > 1 for count in made.values())
    writes = len(ours) / len(made) if made else 0.0
    return [
        Check(len(made) == expected, f"pods placed: {len(made)} of {expected}", f"on {used} of {gpus} GPUs"),
        Check(
            worst.over == 0,
            f"over-committed: {worst.over}",
            f"fullest: {worst.where}, {worst.used} of {worst.total} MiB",
        ),
        Check(
            round(writes, 1) == 1.0 and conflicts == 0,
            f"extender's writes per pod: {writes:.2g}",
            f"{len(made)} bindings, {others} wake-up{'s' * (others != 1)}; events apart",
        ),
        Check(
            not lost and not twice, f"bound twice: {twice}, lost: {lost}", f"across 1 kill -9, {conflicts} conflicts"
        ),
    ]


def dashboard(shown: Mapping[str, Any], snapshot: Snapshot) -> Check:
    """`shown`: the columns that a browser gets."""
    gpus = shown["gpus"]
    granted = sum(amount for amount in gpus["granted"] if amount >= 0)
    sharing = [state for state in snapshot.ledger.nodes() if state.facts is not None and not state.facts.sold]
    used = sum(sum(state.effective().units) for state in sharing)
    count = sum(len(state.facts.gpus) for state in snapshot.ledger.nodes() if state.facts is not None)
    same = (granted, len(gpus["id"])) == (used, count)
    detail = f"granted {granted} MiB, {'as' if same else 'NOT as'} the cluster says"
    return Check(same, f"dashboard shows {len(gpus['id'])} GPUs", detail)


def _gpus(snapshot: Snapshot) -> tuple[int, int]:
    """GPUs in use, and all that are shared by memory."""
    sharing = [state for state in snapshot.ledger.nodes() if state.facts is not None and not state.facts.sold]
    amounts = [used for state in sharing for used in state.effective().units]
    return sum(amount > 0 for amount in amounts), len(amounts)
