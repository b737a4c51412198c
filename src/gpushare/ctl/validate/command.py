"""`gpushare validate [NODE...]`: reads what the nodes' checks have found, tries pods if asked, and shows it."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from gpushare.core.annotations.validation import Check, Checks, State
from gpushare.core.facts import intree, vitals
from gpushare.ctl import formats
from gpushare.ctl.screen import Screen
from gpushare.ctl.validate import page
from gpushare.ctl.validate.report import NodeReport, Policy, Report, built, is_gpu_node, view
from gpushare.obs.errors import UserError
from gpushare.view import snapshot
from gpushare.view.snapshot import Items
from gpushare.view.source import Forbidden, NotFound, Source

POLICIES: Final = f"/apis/{vitals.GROUP}/{vitals.VERSION}/clusterpolicies"
WORKLOAD: Final = "workload"
SOMETHING_FAILED: Final = 1

Tried = tuple[State, str, str]  # state, why, way
Try = Callable[[Sequence[intree.Node]], dict[str, Tried]]  # tries a pod on each of these nodes


class Options(msgspec.Struct, frozen=True):
    nodes: tuple[str, ...] = ()  # empty: all with GPUs
    output: str = ""  # wide, json or yaml; empty: the tables


def run(options: Options, source: Source, screen: Screen, now: float, try_pods: Try | None = None) -> int:
    """Shows the report and returns the exit code. A UserError says what is wrong; stdout is empty then."""
    listed = snapshot.decode(source.get(snapshot.NODES), Items[intree.Node], snapshot.NODES).items or []
    nodes = _named(options.nodes, listed)
    report = built(nodes, _policies(source))
    if try_pods is not None:
        tried = try_pods(nodes)
        stamp = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        for node in report.nodes:
            if node.name in tried:
                node.checks = {**node.checks, WORKLOAD: _check(tried[node.name], stamp)}
    show(report, options.output, screen, now)
    return 0 if report.good else SOMETHING_FAILED


def show_machine(checks: Checks, output: str, screen: Screen, now: float) -> int:
    """The same for the checks of this machine alone."""
    report = Report([NodeReport("this machine", checks)], [])
    show(report, output, screen, now)
    return 0 if report.good else SOMETHING_FAILED


def show(report: Report, output: str, screen: Screen, now: float) -> None:
    if output in formats.FOR_PROGRAMS:
        screen.say(formats.dump(view(report), output))
    else:
        drawn = page.lines(report, screen, now, wide=output == formats.WIDE)
        screen.say("".join(f"{line}\n" for line in drawn))


def _named(wanted: Sequence[str], listed: Sequence[intree.Node]) -> list[intree.Node]:
    if not wanted:
        return [node for node in listed if is_gpu_node(node)]
    by_name = {node.metadata.name: node for node in listed}
    for name in wanted:
        if name not in by_name:
            there = ", ".join(sorted(name for name, node in by_name.items() if is_gpu_node(node))[:10])
            raise UserError(f'no node "{name}"', f"nodes with GPUs: {there or 'none'}", "kubectl get nodes")
    return [by_name[name] for name in dict.fromkeys(wanted)]


def _policies(source: Source) -> list[Policy]:
    """None where there is no operator, or where this user may not read them."""
    try:
        body = source.get(POLICIES)
    except (NotFound, Forbidden):
        return []
    return snapshot.decode(body, Items[Policy], POLICIES).items or []


def _check(tried: Tried, stamp: str) -> Check:
    state, why, way = tried
    return Check(state, stamp, why, way)
