"""The report as lines: one table for each node that is not good, all of them if there are few, and ways out."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

from gpushare.ctl.screen import Screen
from gpushare.ctl.validate.report import NodeReport, Policy, Report
from gpushare.view import wording

FEW: Final = 5  # nodes: each gets a table, also if it is good
LEAST_WIDTH: Final = 30  # of the last column
HEADER: Final = ("CHECK", "STATE", "SINCE", "WHY")
NO_NODES: Final = "no GPU nodes: none has a label of NVIDIA's GPUs, such as nvidia.com/gpu.present=true"
ALL_GOOD: Final = "{node}: all checks passed"
FAILED, WAIT, WAITS = "{checks} failed", "{count} checks wait for others", "1 check waits for others"
OTHERS: Final = "{nodes}: all checks passed (-o wide lists them)"
POLICY: Final = "ClusterPolicy {name}: {state}"
TRY: Final = "Try"


def lines(report: Report, screen: Screen, now: float, *, wide: bool) -> list[str]:
    drawn = [line for policy in report.policies for line in _policy(policy)]
    if not report.nodes:
        return [*drawn, NO_NODES]
    everything = wide or len(report.nodes) <= FEW
    shown = [node for node in report.nodes if everything or node.bad]
    for node in shown:
        drawn += [*([""] if drawn else ()), *_node(node, screen, now)]
    rest = len(report.nodes) - len(shown)
    if rest:
        drawn += [*([""] if drawn else ()), OTHERS.format(nodes=wording.count(rest, "node"))]
    return drawn


def _policy(policy: Policy) -> Iterator[str]:
    yield POLICY.format(name=wording.printable(policy.metadata.name), state=policy.status.state or "new")
    if not policy.good:
        yield from (f"  {wording.printable(line)}" for line in policy.message.splitlines())


def _node(node: NodeReport, screen: Screen, now: float) -> Iterator[str]:
    yield _title(node)
    rows = [
        (name, check.state, wording.age(check.since, now), wording.printable(check.why))
        for name, check in node.checks.items()
    ]
    yield from _table([HEADER, *rows], screen)
    if node.bad and node.ways:
        yield TRY
        for number, way in enumerate(node.ways, 1):
            yield from _wrapped(f"  {number}. ", wording.printable(way), screen)


def _title(node: NodeReport) -> str:
    if not node.bad:
        return ALL_GOOD.format(node=node.name)
    failed = [name for name in node.bad if node.checks[name].state == "failed"]
    waiting = len(node.bad) - len(failed)
    parts = [FAILED.format(checks=" and ".join(failed))] if failed else []
    parts += [WAITS if waiting == 1 else WAIT.format(count=waiting)] if waiting else []
    return f"{node.name}: {', '.join(parts)}"


def _table(rows: Sequence[tuple[str, str, str, str]], screen: Screen) -> Iterator[str]:
    widths = [max(wording.cells(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        begin = "  ".join(f"{word:{width}}" for word, width in zip(row[:3], widths, strict=True)) + "  "
        for line in _wrapped(begin, row[3], screen):
            yield screen.red(line) if row[1] == "failed" else line


def _wrapped(begin: str, text: str, screen: Screen) -> Iterator[str]:
    """`begin`, then the text, which goes on below itself where the terminal ends."""
    if screen.width is None:
        yield f"{begin}{text}".rstrip()
        return
    room = max(screen.width - len(begin), LEAST_WIDTH)
    first, *rest = textwrap.wrap(text, room, break_on_hyphens=False) or [""]
    yield f"{begin}{first}".rstrip()
    yield from (f"{' ' * len(begin)}{line}" for line in rest)
