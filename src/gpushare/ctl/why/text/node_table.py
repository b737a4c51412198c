"""One row per node: what gpushare says, and what kube-scheduler says. The evidence under a verdict of `why`.

Pure. Five rows, the closest node first; with `-o wide` every node and every GPU.
"""

import re
import textwrap
from collections.abc import Sequence

from gpushare.core.explain.report import ROOM, Explanation, GpuView, NodeView, ShareView

MOST_ROWS = 5
HEADS = ("NODE", "GPU MEMORY (gpushare)", "THE REST (kube-scheduler)")
OK, NOT_LOOKED = "ok", "not looked at"
WIDTH = 43  # of the second column at least: most sentences fit, so that tables look alike
GAP, INDENT = "  ", "  "
NARROWEST = 16  # columns in which the last column is still worth wrapping
NODES = "node(s) "
OF_ONE = re.compile(r"^that (count|need|pin)\b")  # of several nodes; a row is about one
MOST_GPUS = 4  # named in one row

Row = tuple[str, str, str]


def table(said: Explanation, *, wide: bool, width: int | None, looked: bool) -> list[str]:
    """`looked`: kube-scheduler's part was looked at. `width`: of the terminal, if it is one."""
    shares = said.request.shares if said.request is not None else []
    shown = said.nodes if wide else said.nodes[:MOST_ROWS]
    rows = [row for view in shown for row in _rows(view, shares, wide, looked)]
    lines = _aligned([HEADS, *rows], width) if rows else []
    if rest := len(said.nodes) - len(shown):
        lines.append(f"{INDENT}and {counted(rest, 'more node')}: -o wide")
    if said.without_gpu:
        lines.append(f"{INDENT}and {counted(said.without_gpu, 'node')} without a GPU")
    return lines


def one_share(shares: Sequence[ShareView]) -> bool:
    """One container on one GPU: the GPU can be named, and how much is missing."""
    return len(shares) == 1 and shares[0].gpus == 1 and not shares[0].whole


def usable(view: NodeView, need: int) -> GpuView | None:
    """The sick GPU that would do."""
    return next((gpu for gpu in view.gpus if not gpu.healthy and gpu.free >= need), None)


def of_total(gpu: GpuView, unit: str | None) -> str:
    return f"{gpu.free} of {gpu.total} {unit} free"


def counted(number: int, word: str) -> str:
    written = f"{number:,}" if number >= 10_000 else str(number)
    return f"{written} {word}{'' if number == 1 else 's'}"


def _rows(view: NodeView, shares: Sequence[ShareView], wide: bool, looked: bool) -> list[Row]:
    rest = view.scheduler.message if view.scheduler is not None else OK if looked else NOT_LOOKED
    if not wide or len(view.gpus) < 2:
        return [(view.name, cell(view, shares), rest)]
    lines = [_gpu_line(gpu, view.unit) for gpu in view.gpus]
    refused = view.gpushare
    if refused is not None and refused.code not in (*ROOM, "TooLarge"):
        lines.insert(0, _bare(view))
    return [(view.name if i == 0 else "", line, rest if i == 0 else "") for i, line in enumerate(lines)]


def cell(view: NodeView, shares: Sequence[ShareView]) -> str:
    """What gpushare says of a node, by its best GPU."""
    if view.gpushare is None:
        best = view.gpus[0] if view.gpus and one_share(shares) else None
        return f"GPU {best.index}: fits, {of_total(best, view.unit)}" if best else "fits"
    code = view.gpushare.code
    if code == "TooLarge" and view.gpus:
        largest = max(view.gpus, key=lambda gpu: gpu.total)
        return f"GPU {largest.index}: {largest.total} {view.unit} in all, too small"
    if code in ROOM and view.gpus:
        return _full(view, shares)
    return _bare(view)


def _bare(view: NodeView) -> str:
    """A refusal that is about the node and not about its GPUs, in the words kube-scheduler is told."""
    refused = view.gpushare
    assert refused is not None
    said = OF_ONE.sub(r"\1s", refused.message.removeprefix(NODES))
    return f"{said}: {refused.detail}" if refused.detail else said


def _full(view: NodeView, shares: Sequence[ShareView]) -> str:
    best = view.gpus[0]
    if one_share(shares):
        sick = usable(view, shares[0].units)
        if view.gpushare is not None and view.gpushare.code == "NoHealthyGpu" and sick is not None:
            return f"GPU {sick.index}: {of_total(sick, view.unit)}, but unhealthy"
        return f"GPU {best.index}: {of_total(best, view.unit)}, {best.short} short"
    if all(share.whole for share in shares):
        return f"GPU {best.index}: {of_total(best, view.unit)}, {counted(best.pods, 'pod')} there"
    named = [f"GPU {gpu.index} {gpu.free}" for gpu in view.gpus if gpu.healthy][:MOST_GPUS]
    return f"free: {', '.join(named)} {view.unit}" if named else "no healthy GPU"


def _gpu_line(gpu: GpuView, unit: str | None) -> str:
    parts = [of_total(gpu, unit)]
    parts += [f"{gpu.short} short"] if gpu.short else []
    parts += [f"unhealthy ({gpu.why})" if gpu.why else "unhealthy"] if not gpu.healthy else []
    return f"GPU {gpu.index}: {', '.join([*parts, counted(gpu.pods, 'pod')])}"


def _aligned(rows: Sequence[Row], width: int | None) -> list[str]:
    first = max(len(row[0]) for row in rows)
    second = max(WIDTH, *(len(row[1]) for row in rows))
    lines = []
    for name, memory, rest in rows:
        before = f"{INDENT}{name:{first}}{GAP}{memory:{second}}{GAP}"
        room = width - len(before) if width is not None else 0
        wrapped = textwrap.wrap(rest, room, break_on_hyphens=False) if room >= NARROWEST else [rest]
        for i, part in enumerate(wrapped or [""]):
            lines.append(f"{before if i == 0 else ' ' * len(before)}{part}".rstrip())
    return lines
