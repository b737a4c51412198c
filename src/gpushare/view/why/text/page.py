"""What `why` says to people: verdict first, evidence second, ways out third.

Pure: an `Explanation` in, text out; whether it was worked out here or by a running extender does not matter. Sentences
wrap at the width of a terminal; without one they never do.
"""

import re
import textwrap
from typing import NamedTuple

from gpushare.core.explain import event_texts, report
from gpushare.core.explain.report import ROOM, Explanation, ShareView, Spot, one_share
from gpushare.core.facts import kinds, units
from gpushare.view import wording
from gpushare.view.why.text import by_count, node_table, runs, scores, short, uses, ways
from gpushare.view.why.text.phrases import NODES, shares_of, unit_of

DAEMON = "DaemonSet"  # its replicas have one node each
MOST_PLACES = 5  # named for replicas that all fit
NARROWEST = 40  # columns; text is never wrapped to less
NO_PART = "{who} asks for no GPU memory: gpushare does not decide where it runs."
FITS_NOW = "{who} is Pending, but it fits right now: {place}. {what} not what it waits for."
NOT_CREATED = "{who} would not be created: {message}."
APIS_PART = "That is what the API server says to a dry run, not GPU memory."
KEPT_OFF_ALL = "kube-scheduler also keeps it off every node that has a shared GPU. That is its rule, not GPU memory."

SOLD_KEPT_OFF_ALL = "kube-scheduler also keeps it off every node that sells such GPUs."


class Style(NamedTuple):
    """How an explanation is shown. `file`: where the pod comes from, if it is not in the cluster."""

    now: float
    file: str = ""
    wide: bool = False
    width: int | None = None
    looked: bool = True  # kube-scheduler's part is known


def text(explanation: Explanation, style: Style) -> str:
    """The whole page, with its last line end."""
    return "\n".join(map(wording.printable, _lines(explanation, style))).rstrip("\n") + "\n"


def _lines(explanation: Explanation, style: Style) -> list[str]:
    who = f"{explanation.pod.name} ({style.file})" if style.file else explanation.pod.name
    if _has_replicas(explanation):
        return _replicas(explanation, style, who)
    if explanation.code == report.NOT_ADMITTED:
        return _wrapped([NOT_CREATED.format(who=who, message=explanation.message), f"  {APIS_PART}"], style)
    if explanation.verdict == "invalid":
        return _wrapped(short.invalid(explanation, who, exists=not style.file), style)
    if explanation.code == report.NO_REQUEST:
        return _wrapped([NO_PART.format(who=who), *_quote(explanation, style)], style)
    if explanation.verdict == "runs":
        lines = by_count.runs(explanation, who, style.now) if explanation.asks else runs.lines(explanation, who)
        return _wrapped([*lines, *uses.lines(explanation, style.now)], style)
    if explanation.verdict == "fits":
        lines = [*_fits(explanation, style, who), *scores.lines(explanation, wide=style.wide)]
        return _wrapped(lines, style) + (_evidence(explanation, style) if style.wide else [])
    return _refused(explanation, style, who)


def _fits(explanation: Explanation, style: Style, who: str) -> list[str]:
    place, spots, what = "nothing is in the way", list[Spot](), "GPUs are" if explanation.asks else "GPU memory is"
    if (wait := next((way for way in explanation.ways if way.way == "wait"), None)) is not None:
        spots = wait.spots or []
        place = _place(wait.node or "", spots, unit_of(explanation, wait.node))
        place = by_count.place(wait, explanation) if explanation.asks else place
    spot = spots[0] if len(spots) == 1 and one_share(shares_of(explanation)) else None
    if style.file:
        left = f", {(spot.free or 0) - spot.units} left after it" if spot is not None else ""
        return [f"{who} would fit now: {place}{left}.", *by_count.several_shared(explanation)]
    asked = f", it asks {spot.units}" if spot is not None else ""
    return [FITS_NOW.format(who=who, place=place + asked, what=what), *_checks(explanation)]


def _checks(explanation: Explanation) -> list[str]:
    return [f"  {'ok  ' if check.ok else 'LOOK'}  {check.text}" for check in explanation.checks]


def _place(node: str, spots: list[Spot], unit: str) -> str:
    if len(spots) == 1:
        return f"{node} GPU {spots[0].gpu}, {spots[0].free} of {spots[0].total} {unit} free"
    each = [f"GPU {spot.gpu} {spot.units} {unit} ({', '.join(spot.containers)})" for spot in spots]
    return f"{node}: {', '.join(each)}" if each else node


def _has_replicas(explanation: Explanation) -> bool:
    if explanation.replicas is None:
        return False
    return explanation.kind == DAEMON or (explanation.replicas.asked != 1 and explanation.verdict != "never")


def _replicas(explanation: Explanation, style: Style, who: str) -> list[str]:
    """For a template with several replicas."""
    assert explanation.replicas is not None
    fit, asked = explanation.replicas.fit, explanation.replicas.asked
    daemon = explanation.kind == DAEMON
    if not asked:
        nothing = "no node of this cluster matches it" if daemon else "it asks for 0 replicas, so nothing is placed"
        return _wrapped([f"{who}: {nothing}."], style)
    noun, verb = ("node", "take it") if daemon else ("replica", "fit")
    would = f"of {wording.count(asked, noun)} would {verb}"
    if explanation.verdict == "fits":
        return _wrapped([f"{who}: {fit} {would} now: {_places(explanation)}."], style)
    which = f"on {explanation.nodes[0].name}" if daemon else f"the {_ordinal(fit + 1)}"
    why = explanation.message.removeprefix(NODES) if daemon else _reason(explanation)
    first = f"{who}: {fit} {would} now; {which}: {why}."
    return [*_wrapped([first], style), *_evidence(explanation, style), *_ways_out(explanation, style)]


def _places(explanation: Explanation) -> str:
    """`2 on gpu-c GPU 1, 1 on gpu-b GPU 0`."""
    gpus = ["" if way.gpu is None else f" GPU {way.gpu}" for way in explanation.ways]
    places = [f"{way.count} on {way.node}{gpu}" for way, gpu in zip(explanation.ways, gpus, strict=True)]
    rest = len(places) - MOST_PLACES
    return ", ".join(places[:MOST_PLACES]) + (f" and on {wording.count(rest, 'more GPU')}" if rest > 0 else "")


def _refused(explanation: Explanation, style: Style, who: str) -> list[str]:
    waits = "would wait" if style.file else f"is {explanation.pod.phase}"
    verdict = f"{who} can never run here" if explanation.verdict == "never" else f"{who} {waits}"
    lines = _in_short(explanation, verdict)
    if not lines:
        first = _wrapped([f"{verdict}: {_reason(explanation)}."], style)
        return [*first, *_evidence(explanation, style), *_ways_out(explanation, style)]
    kept_off = [f"  {also}"] if (also := _kept_off_all(explanation)) else []
    evidence = _evidence(explanation, style) if style.wide else []
    return _wrapped([*lines, *kept_off, *_checks(explanation)], style) + evidence


def _in_short(explanation: Explanation, verdict: str) -> list[str]:
    """Of refusals that need no table; nothing for others."""
    if not one_share(shares_of(explanation)):
        return []
    if explanation.code == "TooLarge" and explanation.verdict == "never":
        return short.too_large(explanation, verdict)
    if explanation.code == "NoHealthyGpu" and explanation.nodes[0].scheduler is None:
        return short.no_healthy(explanation, verdict)
    return []


def _reason(explanation: Explanation) -> str:
    """The refusal as a sentence. One about nodes speaks of all of them, or of the closest."""
    if explanation.code == "NoSharedGpu":
        return event_texts.NO_NODE[0].lower() + event_texts.NO_NODE[1:].rstrip(".")
    if not explanation.message.startswith(NODES):
        return explanation.message
    same = all(view.gpushare is not None and view.gpushare.message == explanation.message for view in explanation.nodes)
    return f"there are only {explanation.message}" if same else f"the closest are {explanation.message}"


def _evidence(explanation: Explanation, style: Style) -> list[str]:
    """What the pod asks, what is free, and what each node says."""
    asked = by_count.asked(explanation) or (_asks(explanation) if explanation.request is not None else "")
    lines = [f"  asks  {asked}"] if asked else []
    lines += [f"  free  {free}"] if (free := _free(explanation)) else []
    drawn = node_table.table(explanation, wide=style.wide, width=style.width, looked=style.looked)
    return _wrapped(lines, style) + (["", *drawn, ""] if drawn else [])


def _ways_out(explanation: Explanation, style: Style) -> list[str]:
    """What would help, whose turn it is, and what kube-scheduler said."""
    lines = [f"  {advice}" for advice in _advice(explanation)]
    lines += [f"  {ways.kept_for(explanation)}"] if explanation.kept is not None or explanation.before else []
    phrases = _phrases(explanation)
    if len(phrases) == 1:
        lines.append(f"  It would fit if {phrases[0]}.")
    elif phrases:
        lines += ["  It would fit if", *(f"    - {phrase}" for phrase in phrases)]
    lines += [f"  {more}" for more in (ways.eviction(explanation), _kept_off_all(explanation)) if more]
    lines += [*by_count.several_shared(explanation), f"  {by_count.NOT_OURS}"] if explanation.asks else []
    if explanation.owner == report.SCHEDULER or style.wide or not explanation.nodes or _kept_off_all(explanation):
        lines += _quote(explanation, style)
    if explanation.detail:  # gpushare's own event, for somebody who may read nothing but the pod
        lines.append(f"  gpushare: {explanation.detail}")
    return _wrapped([*lines, *_checks(explanation)], style)


def sentences(explanation: Explanation, *, exists: bool) -> list[str]:
    """What would help, one sentence each, cheapest first. `exists`: the pod is in the cluster, and not in a file."""
    if explanation.verdict not in ("refused", "never", "invalid") or explanation.code == report.NOT_ADMITTED:
        return []
    lines = short.invalid(explanation, "", exists=exists) if explanation.verdict == "invalid" else []
    if lines := lines or _in_short(explanation, ""):
        return [wording.printable(line.strip()) for line in lines[1:]]
    would = [f"It would fit if {phrase}." for phrase in _phrases(explanation)]
    return [wording.printable(line) for line in (*_advice(explanation), *would)]


def _advice(explanation: Explanation) -> list[str]:
    """What helps against a refusal that does not end when another pod ends."""
    if explanation.code == report.KEPT_OFF:
        return [ways.kept_off(explanation)]
    if hint := ways.hint(explanation):
        return [hint]
    return [line.strip() for line in short.too_large(explanation, "")[1:]] if explanation.code == "TooLarge" else []


def _phrases(explanation: Explanation) -> list[str]:
    """What stands after "It would fit if"."""
    if explanation.asks:
        return by_count.ways(explanation) if explanation.code != report.KEPT_OFF else []
    return ways.phrases(explanation) if explanation.code in ROOM and explanation.verdict == "refused" else []


def _kept_off_all(explanation: Explanation) -> str:
    """Where it is not enough that memory comes free."""
    shared = [view for view in explanation.nodes if view.gpus or view.sold]
    if explanation.code == report.KEPT_OFF or not shared or any(view.scheduler is None for view in shared):
        return ""
    return SOLD_KEPT_OFF_ALL if explanation.asks else KEPT_OFF_ALL


def _quote(explanation: Explanation, style: Style) -> list[str]:
    quote = explanation.scheduler
    if quote is None:
        return []
    when = f", {wording.duration(style.now - wording.timestamp(quote.time))} ago" if quote.time else ""
    return [f"  kube-scheduler{when}: {quote.message}"]


def _asks(explanation: Explanation) -> str:
    """`7000 MiB on one GPU (container main)`."""
    unit, shares = unit_of(explanation), shares_of(explanation)
    if one_share(shares):
        return f"{_amount(shares[0], unit)} on one GPU (container {shares[0].container})"
    return " + ".join(f"{_amount(share, unit)} (container {share.container})" for share in shares)


def _amount(share: ShareView, unit: str) -> str:
    if share.whole:
        return kinds.WHOLE.in_words("", share.gpus)
    if share.mps:
        memory = f"{-(-share.slot_bytes // units.BYTES_IN[unit])} {unit}" if share.slot_bytes else ""
        return kinds.MPS.in_words(memory, share.gpus)
    if share.gpus > 1:
        return f"{share.units} {unit} over {share.gpus} GPUs, {share.units // share.gpus} on each"
    return f"{share.units} {unit}"


def _free(explanation: Explanation) -> str:
    """How much is free, and in how large pieces: enough in all may still not be enough on one GPU."""
    shares = shares_of(explanation)
    if explanation.code not in ROOM or not one_share(shares):
        return ""
    unit = unit_of(explanation)
    views = [view for view in explanation.nodes if view.scheduler is None and view.unit == unit]
    pieces = [g.free for v in views if v.gpushare and v.gpushare.code in ROOM for g in v.gpus if g.healthy]
    if not pieces:
        return ""
    total, largest = sum(pieces), max(pieces)
    if not total:
        return "nothing"
    link = ", but in pieces: the largest is" if total >= shares[0].units else "; the largest piece is"
    return f"{total} {unit} in all{link} {largest} {unit}"


def _ordinal(number: int) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _wrapped(lines: list[str], style: Style) -> list[str]:
    if style.width is None:
        return lines
    return [part for line in lines for part in _wrap(line, max(style.width, NARROWEST))]


def _wrap(line: str, width: int) -> list[str]:
    """Lines after the first begin where its sentence begins: after a bullet, after the word in front of it, or after a
    node and its score."""
    lead = re.match(r"\s*(?:- |(?:asks|free|uses|over|ok  |LOOK)  |\S+ +\d+(?:  | = ))?", line)
    hang = " " * (lead.end() if lead is not None and lead.end() else 2)
    wrapped = textwrap.wrap(line, width, subsequent_indent=hang, break_long_words=False, break_on_hyphens=False)
    return wrapped or [line]
