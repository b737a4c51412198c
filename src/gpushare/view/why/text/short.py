"""Verdicts that need no table: the request is invalid, larger than every GPU, or waits for an unhealthy GPU.

Pure.
"""

import re

from gpushare.core.explain import event_texts
from gpushare.core.explain.report import Explanation
from gpushare.core.facts import names, policies, units
from gpushare.view.why.text import phrases, ways

AGAIN = "A pod cannot be changed: delete it and create it again."
ANNOTATE = "kubectl annotate pod {name} -n {namespace} --overwrite {key}"
# Unlike the requests of its containers, the annotations of a pod can be changed.
_ANNOTATIONS = {
    "UnknownPolicy": f"{names.POLICY}={policies.DEFAULT}",
    "UnknownUnit": f"{names.MEMORY_UNIT}=MiB",
    "CountNotWhole": f"{names.GPU_COUNT}=NUMBER",
}
_OF_CONTAINER = "container "  # how a detail about a container begins
READ_AS = "Container {name} asks {asks}, and Kubernetes reads that as {value} {unit}."
LISTED = f"ConfigMap {names.UNHEALTHY_NAMESPACE}/{names.UNHEALTHY_PREFIX}{{node}} lists it"
_NOT_MEMORY = re.compile(
    r"container (?P<name>\S+) asks (?P<asks>\S+), read as (?P<value>\d+) (?P<unit>\w+)\. "
    r'Write "(?P<write>\d+)"\.'
)
_WITH_SUFFIX = re.compile(r"([\d.]+)([kMGTPE])")
_MIB_IN_GIB = 1024


def invalid(explanation: Explanation, who: str, *, exists: bool) -> list[str]:
    """An invalid request, and what to write instead."""
    detail, way = event_texts.capital(explanation.detail), ""
    if match := _NOT_MEMORY.fullmatch(explanation.detail):
        detail = READ_AS.format(**match.groupdict())
        way = f'Write a plain number: "{match["write"]}"{_rounded(match)}.'
    rest = " ".join(filter(None, (way, _how_to_change(explanation) if exists else "")))
    return [f"{who} can never run: {explanation.message}. {detail}".rstrip(), *([f"  {rest}"] if rest else [])]


def _how_to_change(explanation: Explanation) -> str:
    key = _ANNOTATIONS.get(explanation.code)
    if key is None or explanation.detail.startswith(_OF_CONTAINER):
        return AGAIN
    return ANNOTATE.format(name=explanation.pod.name, namespace=explanation.pod.namespace, key=key)


def _rounded(match: re.Match[str]) -> str:
    """Only where a number of bytes is no whole number of units."""
    if int(match["value"]) % units.BYTES_IN[match["unit"]] == 0:
        return ""
    suffix = _WITH_SUFFIX.fullmatch(match["asks"])
    return f" ({suffix[1]} {suffix[2]}B, rounded up)" if suffix else f" ({match['asks']} bytes, rounded up)"


def too_large(explanation: Explanation, verdict: str) -> list[str]:
    """No GPU is large enough, full or not."""
    shrink = next((way for way in explanation.ways if way.way == "shrink"), None)
    if shrink is None or explanation.request is None:
        return [f"{verdict}: {explanation.message}."]
    unit, asked = phrases.unit_of(explanation, shrink.node), explanation.request.shares[0].units
    in_gib = -(-asked // _MIB_IN_GIB)
    if unit == names.GIB and in_gib <= (shrink.units or 0):
        hint = f'The nodes of this cluster count in GiB: for {asked} MiB write "{in_gib}".'
        return [f"{verdict}: {explanation.message}. {hint}"]
    split = next((way for way in explanation.ways if way.way == "split"), None)
    more = f", or {ways.split(split, explanation)}" if split is not None else ""
    shrunk = f"  It would fit if it asked {shrink.units} {unit} or less{more}."
    sizes = {(view.name, gpu.index): gpu.total for view in explanation.nodes for gpu in view.gpus if gpu.healthy}
    if sizes.get((shrink.node or "", shrink.gpu or 0)) != shrink.units:  # the node allows one container less than that
        return [f"{verdict}: {explanation.message}.", shrunk]
    refused = [view for view in explanation.nodes if view.gpushare and view.gpushare.message == explanation.message]
    larger = any(gpu.total > (shrink.units or 0) for view in refused for gpu in view.gpus)
    largest = f"The largest{' healthy one' if larger else ''} is {shrink.units} {unit} ({shrink.node})."
    return [f"{verdict}: {explanation.message}. {largest}", shrunk]


def no_healthy(explanation: Explanation, verdict: str) -> list[str]:
    """A GPU has room, but is unhealthy."""
    assert explanation.request is not None
    view = explanation.nodes[0]
    heal = next((way for way in explanation.ways if way.way == "heal" and way.node == view.name), None)
    healing = next((gpu for gpu in view.gpus if heal is not None and gpu.index == heal.gpu), None)
    gpu = healing or phrases.unhealthy_with_room(view, explanation.request.shares[0].units)
    if gpu is None:
        return [f"{verdict}: {explanation.message}."]
    has = f"{view.name} GPU {gpu.index} has {phrases.free_of_total(gpu, view.unit)}, but is unhealthy."
    cause = LISTED.format(node=view.name) if gpu.why == "listed" else gpu.why
    back = f"that GPU came back ({cause})" if cause else "that GPU came back"
    would = ", or if ".join(filter(None, (back if healing is not None else "", ways.freeing(explanation))))
    return [f"{verdict}: {explanation.message}. {has}", *([f"  It would fit if {would}."] if would else [])]
