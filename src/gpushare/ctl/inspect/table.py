"""The two tables of `gpushare inspect` as text.

No I/O. Piped, they are those of Aliyun's plugin, byte for byte: scripts read them. For people there are bars and the
word `unhealthy`, where Aliyun's header leaves room, and more columns on the right with `-o wide`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from gpushare.core.explain.inspected import gpus_of
from gpushare.core.facts.model import Unit
from gpushare.ctl.inspect import doing
from gpushare.ctl.screen import Screen
from gpushare.view import wording
from gpushare.view.usage import GpuUse, NodeUse, PodUse

PADDING = 2
NO_GPU = "0/0"
TOTAL = "Allocated/Total GPU Memory In Cluster:"
UNHEALTHY = "unhealthy"
_SUMMARY_WIDE = ("PODS", "LARGEST FREE", "UNHEALTHY")
_DETAILS_WIDE = ("STATUS", "PRIORITY", "AGE", "CONTAINERS")
_MPS_SLOTS = "MPS SLOTS"  # only of nodes that have some
_LINE_OF_SUMMARY, _LINE_OF_DETAILS = 20, 10  # what Aliyun's plugin adds to the length of its rows


class Cell(NamedTuple):
    """The text of a cell, and the same with colour, which takes no room."""

    text: str
    painted: str


class Drawn(msgspec.Struct):
    """A table in parts, so that it can be cut. A block is all the lines of one node."""

    head: list[str]
    blocks: list[list[str]]
    foot: list[str]

    def lines(self) -> list[str]:
        return [*self.head, *(line for block in self.blocks for line in block), *self.foot]


def summary(nodes: Sequence[NodeUse], unit: Unit | None, screen: Screen, *, wide: bool = False) -> Drawn:
    """One row per node."""
    gpus = sorted({index for node in nodes for index in node.indices})
    pending = any(node.pending for node in nodes)
    plain = [_row(node, gpus, pending) for node in nodes]
    heads = [f"GPU{index}(Allocated/Total)" for index in gpus]
    header = ["NAME", "IPADDRESS", *heads, *(["PENDING(Allocated)"] if pending else []), f"GPU Memory({unit or ''})"]
    rows = [[_cell(text) for text in row] for row in plain]
    for at, (index, head) in enumerate(zip(gpus, heads, strict=True), start=2):
        painted = _gpu_column([_gpu(node, index) for node in nodes], len(head), screen)
        for row, cell in zip(rows, painted, strict=True):
            row[at] = cell
    if wide:
        known = doing.is_known(nodes)
        header += (*_SUMMARY_WIDE, *(doing.COLUMNS if known else ()))
        more = [[*_wide_row(node), *(doing.row(node, unit) if known else ())] for node in nodes]
        rows = [[*row, *map(_cell, cells)] for row, cells in zip(rows, more, strict=True)]
    lines = aligned([[_cell(text) for text in header], *rows])
    # Measured with tabs and line end, as Aliyun's plugin does.
    dashes = len("\t".join(plain[0]).encode()) + 1 + _LINE_OF_SUMMARY if plain else 0
    foot = ["-" * dashes, TOTAL, *aligned([[_cell(_share_of_all(nodes))]], closed=True)]
    return Drawn(lines[:1], [[line] for line in lines[1:]], foot)


def details(nodes: Sequence[NodeUse], unit: Unit | None, screen: Screen, now: float, *, wide: bool = False) -> Drawn:
    """One block per node, one row per pod."""
    dashes = _LINE_OF_DETAILS
    if nodes:
        dashes += sum(len("\t".join(_pod_row(nodes[0], pod)).encode()) + 2 for pod in nodes[0].pods)
    if screen.width is not None:
        dashes = min(dashes, screen.width)
    blocks = [[*_block(node, unit, now, wide), "-" * dashes] for node in nodes]
    total = aligned([[_cell(TOTAL), _cell(_share_of_all(nodes))]], closed=True)
    return Drawn([], blocks, ["", "", *total])


def aligned(rows: Sequence[Sequence[Cell]], *, closed: bool = False) -> list[str]:
    """Rows as lines, each column as wide as its widest cell. `closed`: the last cell of a row is padded as well."""
    widths: list[int] = []
    for row in rows:
        for i, cell in enumerate(row if closed else row[:-1]):
            widths += [0] * (i + 1 - len(widths))
            widths[i] = max(widths[i], wording.cells(cell.text) + PADDING)
    lines = []
    for row in rows:
        padded = len(row) if closed else len(row) - 1
        parts = [cell.painted + " " * (widths[i] - wording.cells(cell.text)) for i, cell in enumerate(row[:padded])]
        lines.append("".join(parts) + "".join(cell.painted for cell in row[padded:]))
    return lines


def plain_rows(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows without colour as lines."""
    return aligned([[_cell(text) for text in row] for row in rows])


def _cell(text: str) -> Cell:
    return Cell(text, text)


def _row(node: NodeUse, gpus: Sequence[int], pending: bool) -> list[str]:
    shown = [_amounts(_gpu(node, index)) for index in gpus]
    pending_cell = [str(node.pending) if node.pending else ""] if pending else []
    return [node.name, node.address, *shown, *pending_cell, f"{node.used}/{node.total}"]


def _gpu(node: NodeUse, index: int) -> GpuUse | None:
    return next((gpu for gpu in node.gpus if gpu.index == index), None)


def _amounts(gpu: GpuUse | None) -> str:
    return NO_GPU if gpu is None else f"{gpu.used}/{gpu.total}"


def _gpu_column(gpus: Sequence[GpuUse | None], width: int, screen: Screen) -> list[Cell]:
    """All bars of a column begin at the same place, and end where its header ends."""
    texts = [_amounts(gpu) for gpu in gpus]
    if not (screen.terminal or screen.color):
        return [_cell(text) for text in texts]
    widest = max(map(len, texts), default=0)
    column = []
    for gpu, text in zip(gpus, texts, strict=True):
        bar = screen.bar(gpu.used, gpu.total, width - widest - 1) if gpu is not None else ""
        if gpu is None:
            column.append(Cell(text, screen.dim(text)))
        elif not gpu.healthy:
            column.append(Cell(f"{text:{widest}} {UNHEALTHY}", f"{text:{widest}} {screen.red(UNHEALTHY)}"))
        else:
            column.append(_cell(f"{text:{widest}} {bar}" if bar else text))
    return column


def _wide_row(node: NodeUse) -> list[str]:
    unhealthy = ",".join(f"GPU{gpu.index}" for gpu in node.gpus if not gpu.healthy)
    return [str(len(node.pods)), str(node.largest_free), unhealthy or "-"]


def _block(node: NodeUse, unit: Unit | None, now: float, wide: bool) -> list[str]:
    header = ["NAME", "NAMESPACE", *(f"GPU{index}(Allocated)" for index in node.indices)]
    header += ["Pending(Allocated)"] if node.pending else []
    known = doing.is_known([node])
    if wide:
        header += (*_DETAILS_WIDE, *([_MPS_SLOTS] if _has_slots(node) else []), *([doing.POD_COLUMN] if known else []))
    rows = [[*_pod_row(node, pod), *(_wide_pod(node, pod, now) if wide else ())] for pod in node.pods]
    if wide and known:
        rows = [[*row, doing.pod_cell(node, pod, unit)] for row, pod in zip(rows, node.pods, strict=True)]
    sums = [["Allocated :", f"{node.used} ({_percent(node.used, node.total)}%)"], ["Total :", f"{node.total} "]]
    name = aligned([[_cell("NAME:"), _cell(node.name)], [_cell("IPADDRESS:"), _cell(node.address)]])
    table = aligned([[_cell(text) for text in row] for row in (header, *rows, *sums)], closed=True)
    return ["", *name, "", *table]


def _pod_row(node: NodeUse, pod: PodUse) -> list[str]:
    on = [str(pod.on.get(index, 0)) for index in node.indices]
    return [pod.pod.name, pod.pod.namespace, *on, *([str(pod.pending)] if node.pending else [])]


def _wide_pod(node: NodeUse, pod: PodUse, now: float) -> list[str]:
    status = "Terminating" if pod.pod.terminating else pod.pod.phase
    known = gpus_of(pod.pod, node.facts) if pod.on and node.facts is not None else {}
    containers = ",".join(f"{name}:{'+'.join(f'GPU{gpu}' for gpu in gpus)}" for name, gpus in known.items())
    slots = ",".join(f"GPU{gpu}:{count}" for gpu, count in pod.slots.items())
    row = [status, str(pod.pod.priority), wording.age(pod.pod.created, now), containers or "-"]
    return [*row, slots or "-"] if _has_slots(node) else row


def _has_slots(node: NodeUse) -> bool:
    return any(gpu.slots for gpu in node.gpus)


def _share_of_all(nodes: Sequence[NodeUse]) -> str:
    used, total = sum(node.used for node in nodes), sum(node.total for node in nodes)
    return f"{used}/{total} ({_percent(used, total)}%)"


def _percent(part: int, whole: int) -> int:
    return int(part / whole * 100) if whole > 0 else 0  # in this order, with this rounding: as Aliyun's plugin does
