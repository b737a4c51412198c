"""`gpushare inspect`: GPU memory by node, GPU and pod.

`run` is called by the command line. It reads the cluster once (with `-w` again and again), works out what is used and
who waits, and shows it. Piped it prints the original's tables and nothing else; notes go to stderr.
"""

from collections.abc import Sequence

import msgspec

from gpushare.core.explain.inspected import inspected
from gpushare.core.facts import names
from gpushare.core.facts.model import PodFacts, Unit
from gpushare.ctl import wording
from gpushare.ctl.inspect import table, waiting, watch
from gpushare.ctl.inspect.watch import Clock, Page
from gpushare.ctl.screen import Screen
from gpushare.obs.errors import UserError
from gpushare.view import snapshot, unhealthy, usage
from gpushare.view.snapshot import Snapshot
from gpushare.view.source import Source
from gpushare.view.usage import NodeUse

WIDE, JSON, YAML = "wide", "json", "yaml"

NO_NODES = "this cluster has no nodes."
NONE_OFFERS = "none of {nodes} offers {resource}. "
ONLY_OFFERS_NONE = "the only node offers no {resource}. "
LABELLED = "Labelled gpushare=true: {names}. Look at their plugin: "
LOGS = "kubectl -n kube-system logs -l name=gpushare-device-plugin-ds"
NOT_LABELLED = "The device plugin runs on nodes labelled gpushare=true: kubectl label node NAME gpushare=true"
THIS_OFFERS_NONE = "{name} offers no {resource}."
MIXED = "everything is shown in MiB; nodes that count in GiB: {names}."
UNHEALTHY = "{node} GPU {gpu} is unhealthy: its {free} free {unit} are not given out."
UNHEALTHY_FULL = "{node} GPU {gpu} is unhealthy, and full."
KEPT = "{node} GPU {gpu}: what comes free up to {units} {unit} is kept for {pod}, whose turn it is."
PENDING = "PENDING: bound to {node} without a GPU (pod {pod}, {units} {unit}): {why}"
MOST_LINES = 10  # of one kind below a table, unless all are asked for
MOST_NAMES = 10  # in one sentence


class Options(msgspec.Struct, frozen=True):
    nodes: tuple[str, ...] = ()  # none named: all
    details: bool = False
    output: str = ""  # wide, json or yaml; empty: the table
    watch: bool = False


def run(options: Options, source: Source, screen: Screen, clock: Clock | None = None) -> int:
    """Shows what is used and returns the exit code. A UserError says what went wrong; stdout is empty then."""
    clock = clock or Clock()
    if options.watch:
        if options.output in (JSON, YAML):
            raise UserError(
                f"-w and -o {options.output}", "-w redraws a table", f"leave out -w, or -o {options.output}"
            )
        return watch.run(lambda now: _read(source, now), lambda seen: page(seen, options, screen), screen, clock)
    seen = _read(source, clock.now())
    if options.output in (JSON, YAML):
        shown = _named(options.nodes, seen, usage.nodes(seen))
        screen.say(_for_programs(seen, {node.name for node in shown}, options.output))
        notes = _notes(seen, options.nodes, shown, mixed=False)
    else:
        drawn = page(seen, options, screen)
        screen.say("".join(f"{line}\n" for line in (*drawn.table.lines(), *drawn.below)))
        notes = drawn.notes
    for note in notes:
        screen.note(note)
    return 0


def _read(source: Source, now: float) -> Snapshot:
    seen = snapshot.read(source, now)
    unhealthy.mark(seen, source)
    return seen


def page(seen: Snapshot, options: Options, screen: Screen) -> Page:
    """All there is to show. What is not the original's stands below the table, for people only."""
    shown = _named(options.nodes, seen, usage.nodes(seen))
    notes = _notes(seen, options.nodes, shown, mixed=len({node.unit for node in shown}) > 1)
    unit, shown = usage.in_one_unit(shown)
    wide = options.output == WIDE
    if options.details:
        drawn = table.details(shown, screen, seen.now, wide=wide)
    else:
        drawn = table.summary(shown, unit, screen, wide=wide)
    below, counts = [], ""
    if wide or screen.terminal:
        waits = waiting.who(seen)
        told = waiting.pods(seen, waits if wide else waits[: waiting.MOST])
        listed = waiting.lines(told, seen.now, count=len(waits))
        below = [*listed, *_explained(seen, shown, unit, None if wide else MOST_LINES)]
        below = ["", *below] if below else []
        pods = wording.count(sum(len(node.pods) for node in shown), "pod")
        counts = f"{wording.count(len(shown), 'node')}, {pods}, {wording.number(len(waits))} waiting"
    return Page(drawn, below, notes, counts)


def _named(wanted: Sequence[str], seen: Snapshot, found: list[NodeUse]) -> list[NodeUse]:
    """The nodes that were asked for."""
    known = [node.metadata.name for node in seen.nodes]
    for name in wanted:
        if name not in known:
            raise _no_such_node(name, [node.name for node in found] or known, len(known))
    return [node for node in found if node.name in wanted] if wanted else found


def _no_such_node(name: str, known: list[str], nodes: int) -> UserError:
    import difflib

    near = difflib.get_close_matches(name, known, n=3) if len(known) > MOST_NAMES else known
    way = f"one of {_listed(near or known)}" if known else "kubectl get nodes"
    return UserError(f'no node "{name}"', f"{wording.count(nodes, 'node')} in this cluster, none of that name", way)


def _notes(seen: Snapshot, wanted: Sequence[str], shown: Sequence[NodeUse], *, mixed: bool) -> list[str]:
    if not seen.nodes:
        return [NO_NODES]
    resource = names.GPU_MEM
    if wanted:
        offering = {node.name for node in shown}
        notes = [THIS_OFFERS_NONE.format(name=name, resource=resource) for name in wanted if name not in offering]
    elif not shown:
        labelled = [node.metadata.name for node in seen.nodes if (node.metadata.labels or {}).get("gpushare") == "true"]
        way = LABELLED.format(names=_listed(labelled)) + LOGS if labelled else NOT_LABELLED
        none = NONE_OFFERS if len(seen.nodes) > 1 else ONLY_OFFERS_NONE
        notes = [none.format(nodes=wording.count(len(seen.nodes), "node"), resource=resource) + way]
    else:
        notes = []
    if mixed:
        notes.append(MIXED.format(names=_listed([node.name for node in shown if node.unit == "GiB"])))
    return notes


def _explained(seen: Snapshot, shown: Sequence[NodeUse], unit: Unit | None, most: int | None) -> list[str]:
    """What nobody guesses from the table alone."""
    stray = [
        PENDING.format(node=node.name, pod=_pod_name(pod.pod), units=pod.pending, unit=unit, why=pod.why)
        for node in shown
        for pod in node.pods
        if pod.pending
    ]
    withheld = [
        (UNHEALTHY if gpu.free else UNHEALTHY_FULL).format(node=node.name, gpu=gpu.index, free=gpu.free, unit=unit)
        for node in shown
        for gpu in node.gpus
        if not gpu.healthy
    ]
    return [line for kind in (stray, withheld, _kept(seen, shown)) for line in _at_most(kind, most)]


def _kept(seen: Snapshot, shown: Sequence[NodeUse]) -> list[str]:
    """GPUs that look free and are not, for most."""
    states = [state for node in shown if (state := seen.ledger.node(node.name)) is not None]
    return [
        KEPT.format(
            node=state.name,
            gpu=state.facts.gpus[gpu].index,
            units=units,
            unit=state.facts.unit,
            pod=_pod_name(kept.pod),
        )
        for state in states
        for kept in state.kept()
        for gpu, units in state.charges_of(kept)
        if state.facts is not None
    ]


def _pod_name(pod: PodFacts) -> str:
    return pod.name if pod.namespace == "default" else f"{pod.namespace}/{pod.name}"


def _at_most(lines: list[str], most: int | None) -> list[str]:
    rest = len(lines) - len(lines[:most])
    return [*lines[:most], f"and {rest} more: -o wide"] if rest else lines


def _listed(words: Sequence[str]) -> str:
    rest = len(words) - MOST_NAMES
    return ", ".join(words) if rest <= 0 else f"{', '.join(words[:MOST_NAMES])} and {rest} more"


def _for_programs(seen: Snapshot, shown: set[str], output: str) -> str:
    """The extender's `/inspect`, and who waits."""
    states = [state for name in sorted(shown) if (state := seen.ledger.node(name)) is not None]
    nodes = [inspected(state) for state in states if state.facts is not None]
    said = {"nodes": nodes, "waiting": [waiting.view(one) for one in waiting.pods(seen, waiting.who(seen))]}
    if output == JSON:
        return msgspec.json.format(msgspec.json.encode(said), indent=2).decode() + "\n"
    import yaml

    text: str = yaml.safe_dump(said, sort_keys=False, allow_unicode=True)
    return text
