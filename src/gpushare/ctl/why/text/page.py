"""What `why` says to people: verdict first, evidence second, ways out third.

Pure: an `Explanation` in, text out, whether it was worked out here or by a running extender. The layouts are those of
the documentation. Sentences wrap at the width of a terminal; without one they never do.
"""

import re
import textwrap
from typing import NamedTuple

from gpushare.core.explain import event_texts, report
from gpushare.core.explain.report import ROOM, Explanation, ShareView, Spot
from gpushare.ctl.screen import printable
from gpushare.ctl.why import pod_details, stuck
from gpushare.ctl.why.text import short, ways
from gpushare.ctl.why.text.node_table import NODES, counted, one_share, table
from gpushare.ctl.why.text.runs import runs

DAEMON = "DaemonSet"  # its replicas have a node each
MOST_PLACES = 5  # of replicas that all fit
NARROWEST = 40  # columns; a terminal below that is not worth wrapping for
NO_PART = "{who} asks no GPU memory: gpushare has no part in it."
FITS_NOW = "{who} is Pending, but it fits right now: {place}. GPU memory is not what it waits for."
NOT_CREATED = "{who} would not be created: {message}."
APIS_PART = "That is what the API server says to a dry run, not GPU memory."
BARRED = "And kube-scheduler keeps it off every node that has a shared GPU: that is its rule, not GPU memory."


class How(NamedTuple):
    """How it is to be shown. `file`: where the pod comes from, if it exists nowhere else."""

    now: float
    file: str = ""
    wide: bool = False
    width: int | None = None
    looked: bool = True  # kube-scheduler's part was looked at


def text(said: Explanation, how: How) -> str:
    """All of it, with its line end."""
    return "\n".join(map(printable, _lines(said, how))).rstrip("\n") + "\n"


def _lines(said: Explanation, how: How) -> list[str]:
    who = f"{said.pod.name} ({how.file})" if how.file else said.pod.name
    if said.replicas is not None and (said.kind == DAEMON or (said.replicas.asked != 1 and said.verdict != "never")):
        return _replicas(said, how, who)
    if said.code == report.NOT_ADMITTED:
        return _wrapped([NOT_CREATED.format(who=who, message=said.message), f"  {APIS_PART}"], how)
    if said.verdict == "invalid":
        return _wrapped(short.invalid(said, who, exists=not how.file), how)
    if said.code == report.NO_REQUEST:
        return _wrapped([NO_PART.format(who=who), *_quote(said, how)], how)
    if said.verdict == "runs":
        return _wrapped(runs(said, who), how)
    if said.verdict == "fits":
        return _wrapped(_fits(said, how, who), how) + (_evidence(said, how) if how.wide else [])
    return _refused(said, how, who)


def _fits(said: Explanation, how: How, who: str) -> list[str]:
    way = next((way for way in said.ways if way.way == "wait"), None)
    spots = (way.spots or []) if way is not None else []
    place = _place(way.node or "", spots, ways.unit_of(said, way.node)) if way is not None else "nothing is in the way"
    spot = spots[0] if len(spots) == 1 and said.request is not None and one_share(said.request.shares) else None
    if how.file:
        left = f", {(spot.free or 0) - spot.units} left after it" if spot is not None else ""
        return [f"{who} would fit now: {place}{left}."]
    asked = f", it asks {spot.units}" if spot is not None else ""
    return [FITS_NOW.format(who=who, place=place + asked), *_checks(said)]


def _checks(said: Explanation) -> list[str]:
    return [f"  {'ok  ' if check.ok else 'LOOK'}  {check.text}" for check in said.checks]


def _place(node: str, spots: list[Spot], unit: str) -> str:
    if len(spots) == 1:
        return f"{node} GPU {spots[0].gpu}, {spots[0].free} of {spots[0].total} {unit} free"
    each = [f"GPU {spot.gpu} {spot.units} {unit} ({', '.join(spot.containers)})" for spot in spots]
    return f"{node}: {', '.join(each)}" if each else node


def _replicas(said: Explanation, how: How, who: str) -> list[str]:
    """Of a template that is wanted more than once."""
    assert said.replicas is not None
    fit, asked = said.replicas.fit, said.replicas.asked
    daemon = said.kind == DAEMON
    if not asked:
        nothing = "no node of this cluster is meant by it" if daemon else "it asks for 0 replicas, so nothing is placed"
        return _wrapped([f"{who}: {nothing}."], how)
    would = f"of {counted(asked, 'node')} would take it" if daemon else f"of {counted(asked, 'replica')} would fit"
    if said.verdict == "fits":
        return _wrapped([f"{who}: {fit} {would} now: {_places(said)}."], how)
    which = f"on {said.nodes[0].name}" if daemon else f"the {_ordinal(fit + 1)}"
    why = said.message.removeprefix(NODES) if daemon else _reason(said)
    first = f"{who}: {fit} {would} now; {which}: {why}."
    return [*_wrapped([first], how), *_evidence(said, how), *_out(said, how)]


def _places(said: Explanation) -> str:
    """`2 on gpu-c GPU 1, 1 on gpu-b GPU 0`."""
    gpus = ["" if way.gpu is None else f" GPU {way.gpu}" for way in said.ways]
    places = [f"{way.count} on {way.node}{gpu}" for way, gpu in zip(said.ways, gpus, strict=True)]
    rest = len(places) - MOST_PLACES
    return ", ".join(places[:MOST_PLACES]) + (f" and on {counted(rest, 'more GPU')}" if rest > 0 else "")


def _refused(said: Explanation, how: How, who: str) -> list[str]:
    waits = "would wait" if how.file else f"is {said.pod.phase}"
    verdict = f"{who} can never run here" if said.verdict == "never" else f"{who} {waits}"
    shares = said.request.shares if said.request is not None else []
    if said.code == "TooLarge" and said.verdict == "never" and one_share(shares):
        lines = short.too_large(said, verdict)
    elif said.code == "NoHealthyGpu" and one_share(shares) and said.nodes[0].scheduler is None:
        lines = short.no_healthy(said, verdict)
    else:
        return [*_wrapped([f"{verdict}: {_reason(said)}."], how), *_evidence(said, how), *_out(said, how)]
    barred = [f"  {also}"] if (also := _barred(said)) else []
    return _wrapped([*lines, *barred, *_checks(said)], how) + (_evidence(said, how) if how.wide else [])


def _reason(said: Explanation) -> str:
    """The refusal in a sentence of its own. Those about nodes are said of all of them, or of the closest."""
    if said.code == "NoSharedGpu":
        return event_texts.NO_NODE[0].lower() + event_texts.NO_NODE[1:].rstrip(".")
    if not said.message.startswith(NODES):
        return said.message
    same = all(view.gpushare is not None and view.gpushare.message == said.message for view in said.nodes)
    return f"there are only {said.message}" if same else f"the closest are {said.message}"


def _evidence(said: Explanation, how: How) -> list[str]:
    """What it asks, what is free, and what each node says."""
    lines = [f"  asks  {asks(said)}"] if said.request is not None else []
    lines += [f"  free  {free}"] if (free := _free(said)) else []
    drawn = table(said, wide=how.wide, width=how.width, looked=how.looked)
    return _wrapped(lines, how) + (["", *drawn, ""] if drawn else [])


def _out(said: Explanation, how: How) -> list[str]:
    """Ways out, and whose turn it is."""
    lines: list[str] = []
    if said.code == report.KEPT_OFF:
        lines.append(f"  {ways.kept_off(said)}")
    elif hint := ways.hint(said):
        lines.append(f"  {hint}")
    elif said.code == "TooLarge":
        lines += short.too_large(said, "")[1:]
    lines += [f"  {ways.kept_for(said)}"] if said.kept is not None or said.before else []
    phrases = ways.ways(said) if said.code in ROOM and said.verdict == "refused" else []
    if len(phrases) == 1:
        lines.append(f"  It would fit if {phrases[0]}.")
    elif phrases:
        lines += ["  It would fit if", *(f"    - {phrase}" for phrase in phrases)]
    lines += [f"  {more}" for more in (ways.eviction(said), _barred(said)) if more]
    if said.owner == report.SCHEDULER or how.wide or not said.nodes or _barred(said):
        lines += _quote(said, how)
    if said.detail:  # gpushare's own event, for somebody who may read nothing but the pod
        lines.append(f"  gpushare: {said.detail}")
    return _wrapped([*lines, *_checks(said)], how)


def _barred(said: Explanation) -> str:
    """Said where freeing memory alone would not help."""
    shared = [view for view in said.nodes if view.gpus]
    if said.code == report.KEPT_OFF or not shared or any(view.scheduler is None for view in shared):
        return ""
    return BARRED


def _quote(said: Explanation, how: How) -> list[str]:
    if said.scheduler is None:
        return []
    when = f", {stuck.ago(how.now - pod_details.moment(said.scheduler.time))} ago" if said.scheduler.time else ""
    return [f"  kube-scheduler{when}: {said.scheduler.message}"]


def asks(said: Explanation) -> str:
    """`7000 MiB on one GPU (container main)`."""
    assert said.request is not None
    unit, shares = ways.unit_of(said), said.request.shares
    if one_share(shares):
        return f"{_amount(shares[0], unit)} on one GPU (container {shares[0].container})"
    return " + ".join(f"{_amount(share, unit)} (container {share.container})" for share in shares)


def _amount(share: ShareView, unit: str) -> str:
    if share.whole:
        return "a whole GPU" if share.gpus == 1 else f"{share.gpus} whole GPUs"
    if share.gpus > 1:
        return f"{share.units} {unit} over {share.gpus} GPUs, {share.units // share.gpus} on each"
    return f"{share.units} {unit}"


def _free(said: Explanation) -> str:
    """Enough in all and yet refused is what nobody expects."""
    if said.code not in ROOM or said.request is None or not one_share(said.request.shares):
        return ""
    unit = ways.unit_of(said)
    views = [view for view in said.nodes if view.scheduler is None and view.unit == unit]
    pieces = [g.free for v in views if v.gpushare and v.gpushare.code in ROOM for g in v.gpus if g.healthy]
    if not pieces:
        return ""
    total, largest = sum(pieces), max(pieces)
    if not total:
        return "nothing"
    link = ", but in pieces: the largest is" if total >= said.request.shares[0].units else "; the largest piece is"
    return f"{total} {unit} in all{link} {largest} {unit}"


def _ordinal(number: int) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _wrapped(lines: list[str], how: How) -> list[str]:
    if how.width is None:
        return lines
    return [part for line in lines for part in _wrap(line, max(how.width, NARROWEST))]


def _wrap(line: str, width: int) -> list[str]:
    """Continued below where the sentence itself begins: behind a bullet, or the word in front of it."""
    lead = re.match(r"\s*(?:- |(?:asks|free|ok  |LOOK)  )?", line)
    hang = " " * (lead.end() if lead is not None and lead.end() else 2)
    wrapped = textwrap.wrap(line, width, subsequent_indent=hang, break_long_words=False, break_on_hyphens=False)
    return wrapped or [line]
