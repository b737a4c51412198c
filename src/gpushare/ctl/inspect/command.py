"""`gpushare inspect`: GPU memory by node, GPU and pod.

It reads the cluster once (with `-w` again and again), works out what is used and who waits, and shows it. Piped it
prints the tables of Aliyun's plugin and nothing else; notes go to stderr.
"""

from collections.abc import Sequence

import msgspec

from gpushare.core.explain.inspected import inspected
from gpushare.core.facts import names
from gpushare.core.facts.model import Unit
from gpushare.core.facts.vitals import is_fresh
from gpushare.ctl import formats
from gpushare.ctl.inspect import doing, sold_table, table, watch
from gpushare.ctl.inspect.watch import Clock, Page
from gpushare.ctl.screen import Screen
from gpushare.obs.errors import UserError
from gpushare.view import remarks, snapshot, sold, unhealthy, usage, wording
from gpushare.view.snapshot import Snapshot
from gpushare.view.sold import SoldUse
from gpushare.view.source import Source
from gpushare.view.usage import NodeUse

NO_NODES = "this cluster has no nodes."
NONE_OFFERS = "none of {nodes} offers {resource}. "
ONLY_OFFERS_NONE = "the only node offers no {resource}. "
LABELLED = "Labelled gpushare=true: {names}. Look at their plugin: "
LOGS = "kubectl -n kube-system logs -l name=gpushare-device-plugin-ds"
SELLING = "GPUs are sold by count on {names}: -o wide shows them."
NOT_LABELLED = "The device plugin runs on nodes labelled gpushare=true: kubectl label node NAME gpushare=true"
THIS_OFFERS_NONE = "{name} offers no {resource}."
MIXED = "everything is shown in MiB; nodes whose GPU memory unit is GiB: {names}."
MOST_LINES = 10  # of one kind below a table, except with -o wide
MOST_NAMES = 10  # in one sentence


class Options(msgspec.Struct, frozen=True):
    nodes: tuple[str, ...] = ()  # empty: all
    details: bool = False
    output: str = ""  # wide, json or yaml; empty: the table
    watch: bool = False


def run(options: Options, source: Source, screen: Screen, clock: Clock | None = None) -> int:
    """Shows what is used and returns the exit code. A UserError says what is wrong; stdout is empty then."""
    clock = clock or Clock()
    if options.watch:
        if options.output in formats.FOR_PROGRAMS:
            raise UserError(
                f"-w and -o {options.output} do not go together",
                "-w redraws a table",
                f"leave out -w, or -o {options.output}",
            )
        with_vitals = _shows_doing(options, screen)
        return watch.run(
            lambda now: _read(source, now, with_vitals), lambda cluster: page(cluster, options, screen), screen, clock
        )
    cluster = _read(source, clock.now(), _shows_doing(options, screen))
    if options.output in formats.FOR_PROGRAMS:
        shown, selling = _named(options.nodes, cluster)
        screen.say(formats.dump(_for_programs(cluster, {node.name for node in shown}, selling), options.output))
        notes = _notes(cluster, options.nodes, shown, selling, mixed=False, listed=True)
    else:
        drawn = page(cluster, options, screen)
        screen.say("".join(f"{line}\n" for line in (*drawn.table.lines(), *drawn.below)))
        notes = drawn.notes
    for note in notes:
        screen.note(note)
    return 0


def _shows_doing(options: Options, screen: Screen) -> bool:
    """Whether anything of what GPUs do is shown: else it is not read, and the plain table comes sooner."""
    return bool(options.output) or (options.details and screen.terminal)


def _read(source: Source, now: float, with_vitals: bool) -> Snapshot:
    reading = None
    if with_vitals:
        from gpushare.view import vitals

        reading = vitals.Reading(source)
    cluster = snapshot.read(source, now)
    unhealthy.mark(cluster, source)
    if reading is not None:
        cluster.doing = reading.found()
    return cluster


def page(cluster: Snapshot, options: Options, screen: Screen) -> Page:
    """All there is to show. What Aliyun's plugin does not print stands below the table, for people only."""
    shown, selling = _named(options.nodes, cluster)
    wide = options.output == formats.WIDE
    mixed, listed = len({node.unit for node in shown}) > 1, wide or screen.terminal
    notes = _notes(cluster, options.nodes, shown, selling, mixed=mixed, listed=listed)
    unit, shown = usage.in_one_unit(shown)
    if options.details:
        drawn = table.details(shown, unit, screen, cluster.now, wide=wide)
    else:
        drawn = table.summary(shown, unit, screen, wide=wide)
    if not listed:
        return Page(drawn, [], notes, "")
    from gpushare.ctl.inspect.waiting import MOST, lines
    from gpushare.view.why import waiting  # explains refusals: piped, the command starts without it

    waits = waiting.who(cluster)
    answered = waiting.pods(cluster, waits if wide else waits[:MOST])
    most = None if wide else MOST_LINES
    sold_lines = sold_table.lines(selling, cluster.now, details=options.details, wide=wide)
    rest = lines(answered, cluster.now, count=len(waits))
    rest += [*_explained(cluster, shown, unit, most), *_at_most(sold_table.unhealthy(selling), most)]
    rest += _doing(shown, cluster.now, most, pods=options.details and wide)
    below = [line for part in (sold_lines, rest) if part for line in ("", *part)]
    return Page(drawn, below, notes, _counts(shown, selling, len(waits)))


def _counts(shown: Sequence[NodeUse], selling: Sequence[SoldUse], waiting: int) -> str:
    nodes = {node.name for node in shown} | {use.node for use in selling}
    pods = sum(len(node.pods) for node in shown) + sum(len(use.buyers) for use in selling)
    return f"{wording.count(len(nodes), 'node')}, {wording.count(pods, 'pod')}, {wording.number(waiting)} waiting"


def _named(wanted: Sequence[str], cluster: Snapshot) -> tuple[list[NodeUse], list[SoldUse]]:
    """What the nodes that were named offer, and what they sell by count; all nodes if none was named."""
    uses, selling = usage.nodes(cluster), sold.uses(cluster)
    known = [node.metadata.name for node in cluster.nodes]
    for name in wanted:
        if name not in known:
            with_gpus = dict.fromkeys([*(node.name for node in uses), *(use.node for use in selling)])
            raise _no_such_node(name, sorted(with_gpus) or known, len(known))
    if not wanted:
        return uses, selling
    return [node for node in uses if node.name in wanted], [use for use in selling if use.node in wanted]


def _no_such_node(name: str, known: list[str], nodes: int) -> UserError:
    import difflib

    near = difflib.get_close_matches(name, known, n=3) if len(known) > MOST_NAMES else known
    way = f"one of {_listed(near or known)}" if known else "kubectl get nodes"
    return UserError(f'no node "{name}"', f"{wording.count(nodes, 'node')} in this cluster, none of that name", way)


def _notes(
    cluster: Snapshot,
    wanted: Sequence[str],
    shown: Sequence[NodeUse],
    selling: Sequence[SoldUse],
    *,
    mixed: bool,
    listed: bool,
) -> list[str]:
    """For stderr. `listed`: what is sold by count is shown."""
    sellers = list(dict.fromkeys(use.node for use in selling))
    if not cluster.nodes:
        return [NO_NODES]
    resource = names.GPU_MEM
    if wanted:
        offering = {node.name for node in shown} | set(sellers if listed else ())
        notes = [THIS_OFFERS_NONE.format(name=name, resource=resource) for name in wanted if name not in offering]
    elif not shown:
        labelled = [
            node.metadata.name for node in cluster.nodes if (node.metadata.labels or {}).get("gpushare") == "true"
        ]
        way = LABELLED.format(names=_listed(labelled)) + LOGS if labelled else "" if sellers else NOT_LABELLED
        none = NONE_OFFERS if len(cluster.nodes) > 1 else ONLY_OFFERS_NONE
        notes = [(none.format(nodes=wording.count(len(cluster.nodes), "node"), resource=resource) + way).rstrip()]
    else:
        notes = []
    if notes and sellers and not listed:
        notes.append(SELLING.format(names=_listed(sellers)))
    if mixed:
        notes.append(MIXED.format(names=_listed([node.name for node in shown if node.unit == "GiB"])))
    return notes


def _explained(cluster: Snapshot, shown: Sequence[NodeUse], unit: Unit | None, most: int | None) -> list[str]:
    """Sentences about what the table alone does not explain."""
    kinds = (
        remarks.pending(shown, unit),
        remarks.unhealthy(shown, unit),
        remarks.kept(cluster.ledger, shown),
        remarks.slots(shown),
        remarks.mps_down(shown),
        remarks.whole(shown),
    )
    return [line for kind in kinds for line in _at_most(kind, most)]


def _doing(shown: Sequence[NodeUse], now: float, most: int | None, *, pods: bool) -> list[str]:
    """Who uses more than it asked, and what is unknown. `pods`: there is a column for each pod."""
    unknown = [
        doing.CONTAINERS.format(nodes=_listed(nodes), why=why)
        for why, nodes in (doing.without_containers(shown).items() if pods else ())
    ]
    kinds = (doing.over_use(shown), doing.stale(shown, now), unknown)
    return [line for kind in kinds for line in _at_most(kind, most)]


def _at_most(lines: list[str], most: int | None) -> list[str]:
    rest = len(lines) - len(lines[:most])
    return [*lines[:most], f"and {rest} more: -o wide"] if rest else lines


def _listed(words: Sequence[str]) -> str:
    rest = len(words) - MOST_NAMES
    return ", ".join(words) if rest <= 0 else f"{', '.join(words[:MOST_NAMES])} and {rest} more"


def _for_programs(cluster: Snapshot, shown: set[str], selling: Sequence[SoldUse]) -> dict[str, object]:
    """The answer of the extender's `/inspect`, what is sold by count, and the pods that wait."""
    from gpushare.view.why import waiting

    states = [state for name in sorted(shown) if (state := cluster.ledger.node(name)) is not None]
    fresh = {name: status for name, status in cluster.doing.items() if is_fresh(status, cluster.now)}
    nodes = [inspected(state, fresh.get(state.name)) for state in states if state.facts is not None]
    waits = [waiting.view(one) for one in waiting.pods(cluster, waiting.who(cluster))]
    return {"nodes": nodes, "sold": list(map(sold_table.view, selling)), "waiting": waits}
