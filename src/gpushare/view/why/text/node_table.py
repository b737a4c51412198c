"""One row per node: what gpushare says, and what kube-scheduler says. It is the evidence below a verdict of `why`.

Pure. Five rows, the closest node first; with `-o wide` every node and every GPU.
"""

import re
import textwrap
from collections.abc import Sequence

from gpushare.core.explain.report import ROOM, Explanation, GpuView, NodeView, ShareView, one_share
from gpushare.core.facts import names
from gpushare.view import wording
from gpushare.view.why.text import by_count, phrases

MOST_ROWS = 5
HEADER = ("NODE", "GPU MEMORY (gpushare)", "THE REST (kube-scheduler)")
OK, NOT_LOOKED = "ok", "not looked at"
WIDTH = 43  # of the second column, at least: most sentences fit, so that tables look alike
GAP, INDENT = "  ", "  "
NARROWEST = 16  # columns; where less is left for the last column, it is not wrapped
# A refusal speaks of several nodes ("node(s) whose plugin is down", "node(s) that pin ..."), a row of one.
RELATIVE = re.compile(r"^(?:whose|that(?= refused\b)) ")
PLURAL = re.compile(r"^that (allow|need|pin|sell)\b")
BEING = re.compile(r"^that are ")
MOST_GPUS = 4  # named in one row

Row = tuple[str, str, str]


def table(explanation: Explanation, *, wide: bool, width: int | None, looked: bool) -> list[str]:
    """`looked`: kube-scheduler's part is known. `width`: of the terminal, if stdout is one."""
    shown = explanation.nodes if wide else explanation.nodes[:MOST_ROWS]
    rows = [row for view in shown for row in _rows(view, explanation, wide, looked)]
    header = (HEADER[0], by_count.COLUMN, HEADER[2]) if explanation.asks else HEADER
    lines = _aligned([header, *rows], width) if rows else []
    if rest := len(explanation.nodes) - len(shown):
        lines.append(f"{INDENT}and {wording.count(rest, 'more node')}: -o wide")
    if explanation.by_memory:
        lines.append(f"{INDENT}and {wording.count(explanation.by_memory, 'node')} for GPU memory ({names.GPU_MEM})")
    if explanation.without_gpu:
        lines.append(f"{INDENT}and {wording.count(explanation.without_gpu, 'node')} without a GPU")
    return lines


def _rows(view: NodeView, explanation: Explanation, wide: bool, looked: bool) -> list[Row]:
    scheduler = view.scheduler.message if view.scheduler is not None else OK if looked else NOT_LOOKED
    if explanation.asks and view.gpushare is None:
        return [(view.name, by_count.sells(view), scheduler)]
    if not wide or len(view.gpus) < 2:
        return [(view.name, _memory(view, phrases.shares_of(explanation)), scheduler)]
    lines = [_gpu_line(gpu, view.unit) for gpu in view.gpus]
    refused = view.gpushare
    if refused is not None and refused.code not in (*ROOM, "TooLarge"):
        lines.insert(0, _refusal(view))
    return [(view.name if i == 0 else "", line, scheduler if i == 0 else "") for i, line in enumerate(lines)]


def _memory(view: NodeView, shares: Sequence[ShareView]) -> str:
    """What gpushare says of a node, with its best GPU."""
    if view.gpushare is None:
        best = view.gpus[0] if view.gpus and one_share(shares) else None
        return f"GPU {best.index}: fits, {phrases.free_of_total(best, view.unit)}" if best else "fits"
    code = view.gpushare.code
    if code == "TooLarge" and view.gpus:
        largest = max(view.gpus, key=lambda gpu: gpu.total)
        return f"GPU {largest.index}: {largest.total} {view.unit} in all, too small"
    if code in ROOM and view.gpus:
        return _too_little(view, shares)
    return _refusal(view)


def _refusal(view: NodeView) -> str:
    """A refusal that is about the node and not about its GPUs, nearly in the words that kube-scheduler gets."""
    refused = view.gpushare
    assert refused is not None
    message = BEING.sub("is ", PLURAL.sub(r"\1s", RELATIVE.sub("", refused.message.removeprefix(phrases.NODES))))
    return f"{message}: {refused.detail}" if refused.detail else message


def _too_little(view: NodeView, shares: Sequence[ShareView]) -> str:
    best = view.gpus[0]
    if one_share(shares):
        unhealthy = phrases.unhealthy_with_room(view, shares[0].units)
        if view.gpushare is not None and view.gpushare.code == "NoHealthyGpu" and unhealthy is not None:
            return f"GPU {unhealthy.index}: {phrases.free_of_total(unhealthy, view.unit)}, but unhealthy"
        return f"GPU {best.index}: {phrases.free_of_total(best, view.unit)}, {best.short} short"
    if all(share.whole for share in shares):
        return f"GPU {best.index}: {phrases.free_of_total(best, view.unit)}, {wording.count(best.pods, 'pod')} there"
    healthy = [gpu for gpu in view.gpus if gpu.healthy][:MOST_GPUS]
    if any(share.mps for share in shares):
        with_slots = [f"GPU {gpu.index} {gpu.free} and {wording.count(gpu.free_slots, 'slot')}" for gpu in healthy]
        return f"free: {', '.join(with_slots)}" if with_slots else "no healthy GPU"
    named = [f"GPU {gpu.index} {gpu.free}" for gpu in healthy]
    return f"free: {', '.join(named)} {view.unit}" if named else "no healthy GPU"


def _gpu_line(gpu: GpuView, unit: str | None) -> str:
    parts = [phrases.free_of_total(gpu, unit)]
    parts += [f"{gpu.short} short"] if gpu.short else []
    parts += [f"unhealthy ({gpu.why})" if gpu.why else "unhealthy"] if not gpu.healthy else []
    return f"GPU {gpu.index}: {', '.join([*parts, wording.count(gpu.pods, 'pod')])}"


def _aligned(rows: Sequence[Row], width: int | None) -> list[str]:
    first = max(len(row[0]) for row in rows)
    second = max(WIDTH, *(len(row[1]) for row in rows))
    lines = []
    for name, memory, scheduler in rows:
        before = f"{INDENT}{name:{first}}{GAP}{memory:{second}}{GAP}"
        room = width - len(before) if width is not None else 0
        wrapped = [scheduler]
        if room >= NARROWEST:
            wrapped = textwrap.wrap(scheduler, room, break_on_hyphens=False, break_long_words=False)
        for i, part in enumerate(wrapped or [""]):
            lines.append(f"{before if i == 0 else ' ' * len(before)}{part}".rstrip())
    return lines
