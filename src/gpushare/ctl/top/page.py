"""The screen of `gpushare top` as text: a line about the cluster, GPUs in the chosen order, then pods, over-use first.

No I/O. On a terminal it is cut to the height of the window: pods get a third of it. Piped, everything is printed.
"""

from collections.abc import Sequence

from gpushare.ctl.inspect.table import Cell, Drawn, aligned
from gpushare.ctl.inspect.watch import Page
from gpushare.ctl.screen import Screen
from gpushare.ctl.top.rows import GpuRow, PodRow, Rows, ordered
from gpushare.view import wording

UNKNOWN = "-"
KEYS = "sort: u used  b busy  g granted  f free  i idle  o over  t temperature  w watts  n name    q ends"
GPU_COLUMNS = ("NODE", "GPU", "MODEL", "GRANTED(MiB)", "USED(MiB)", "BUSY", "TEMP", "POWER", "PODS", "")
POD_COLUMNS = ("POD", "NODE", "GPU", "GRANTED(MiB)", "USED(MiB)", "OVER")
NO_GPUS = "no node of this cluster says that it has GPUs"
UNPUBLISHED = "what GPUs do is unknown on {nodes}: gpushare node publishes it there, see docs/metrics.md."
MOST_NAMES = 3
BAR = 8
AROUND = 6  # lines that are neither a GPU nor a pod: title, keys, two headers, an empty line, the cursor's


def page(rows: Rows, order: str, waiting: int, screen: Screen, *, keys: bool) -> Page:
    """`keys`: people can press them, so they are named, and only what fits is drawn."""
    gpus, pods = ordered(rows.gpus, order), rows.pods
    notes = [UNPUBLISHED.format(nodes=_named(rows.unpublished))] if rows.unpublished else []
    shown_gpus, shown_pods = (
        _that_fit(len(gpus), len(pods), (screen.height or 0) - len(notes)) if keys else (len(gpus), len(pods))
    )
    head = [screen.dim(KEYS)] if keys else []
    table = _gpus(gpus[:shown_gpus], screen)
    blocks = [[line] for line in table[1:]] + _rest(len(gpus) - shown_gpus, "GPU")
    if not gpus:
        return Page(Drawn([NO_GPUS], [], []), [], [], counts(rows, waiting))
    below = [
        "",
        *_pods(pods[:shown_pods], screen),
        *(line for part in _rest(len(pods) - shown_pods, "pod") for line in part),
    ]
    return Page(Drawn([*head, table[0]], blocks, []), below if pods else [], notes, counts(rows, waiting))


def counts(rows: Rows, waiting: int) -> str:
    """The line about the cluster."""
    gpus = rows.gpus
    by_memory = [row for row in gpus if row.granted is not None]
    total = sum(row.total for row in by_memory)
    granted = sum(row.granted or 0 for row in by_memory)
    known = [row for row in gpus if row.used is not None]
    used, of = sum(row.used or 0 for row in known), sum(row.total for row in known)
    parts = [wording.count(len(gpus), "GPU"), f"granted {_percent(granted, total)}", f"used {_percent(used, of)}"]
    parts += [f"{wording.number(waiting)} waiting"]
    if unhealthy := sum(not row.healthy for row in gpus):
        parts.append(f"{wording.number(unhealthy)} unhealthy")
    if over := sum(pod.over > 0 for pod in rows.pods):
        parts.append(f"{wording.count(over, 'pod')} over")
    return ", ".join(parts)


def _that_fit(gpus: int, pods: int, height: int) -> tuple[int, int]:
    room = max(height - AROUND, 2)
    for_pods = min(pods, max(room // 3, room - gpus))
    for_gpus = min(gpus, room - for_pods)
    # What is cut takes a line to say so.
    return max(for_gpus - (for_gpus < gpus), 0), max(for_pods - (for_pods < pods), 0)


def _rest(count: int, what: str) -> list[list[str]]:
    return [[f"… {wording.count(count, f'more {what}')}"]] if count > 0 else []


def _gpus(gpus: Sequence[GpuRow], screen: Screen) -> list[str]:
    rows = [[_plain(text) for text in GPU_COLUMNS]]
    for row in gpus:
        mark = "" if row.healthy else "unhealthy"
        if row.over:
            mark = f"{mark}, over by {row.over} MiB".removeprefix(", ")
        figures = [_with(row.utilization, "%"), _with(row.temperature, " °C"), _with(row.power, " W"), str(row.pods)]
        rows.append([
            _plain(row.node), _plain(str(row.gpu)), _plain(wording.printable(row.model) or UNKNOWN),
            _amount(row.granted, row.total, screen), _amount(row.used, row.total, screen), *map(_plain, figures),
            Cell(mark, screen.red(mark)),
        ])  # fmt: skip
    return aligned(rows)


def _pods(pods: Sequence[PodRow], screen: Screen) -> list[str]:
    rows = [[_plain(text) for text in POD_COLUMNS]]
    for row in pods:
        over = f"{row.over} MiB" if row.over else ""
        gpus = ",".join(map(str, row.gpus)) or UNKNOWN
        name = f"{row.namespace}/{row.name}"
        rows.append(
            [*map(_plain, (name, row.node, gpus, str(row.granted), _with(row.used, ""))), Cell(over, screen.red(over))]
        )
    return aligned(rows)


def _amount(part: int | None, whole: int, screen: Screen) -> Cell:
    if part is None:
        return _plain(f"{UNKNOWN}/{whole}")
    bar = screen.bar(part, whole, BAR) if screen.terminal else ""
    return _plain(f"{part}/{whole} {bar}".rstrip())


def _with(figure: int | None, unit: str) -> str:
    return UNKNOWN if figure is None else f"{figure}{unit}"


def _percent(part: int, whole: int) -> str:
    return f"{part * 100 // whole}%" if whole else UNKNOWN


def _plain(text: str) -> Cell:
    return Cell(text, text)


def _named(names: Sequence[str]) -> str:
    rest = len(names) - MOST_NAMES
    return ", ".join(names) if rest <= 0 else f"{', '.join(names[:MOST_NAMES])} and {rest} more"
