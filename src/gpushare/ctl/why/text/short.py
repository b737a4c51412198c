"""Verdicts that need no table: what is wrong with the request, or with the GPU that would do.

Pure. The part of `whytext` for requests that mean nothing, that no GPU is large enough for, or that only a sick GPU
keeps waiting.
"""

import re

from gpushare.core.explain import event_texts
from gpushare.core.explain.report import Explanation
from gpushare.core.facts import names, units
from gpushare.ctl.why.text import ways
from gpushare.ctl.why.text.node_table import of_total, usable

AGAIN = "A pod cannot be changed: delete it and create it again."
ANNOTATE = "kubectl annotate pod {name} -n {namespace} --overwrite {key}"
# Unlike what its containers ask, a pod's annotations can be written again.
_KEYS = {
    "UnknownPolicy": f"{names.POLICY}=binpack",
    "UnknownUnit": f"{names.MEMORY_UNIT}=MiB",
    "CountNotWhole": f"{names.GPU_COUNT}=NUMBER",
}
_OF_CONTAINER = "container "
READ_AS = "Container {name} asks {asks}, and Kubernetes reads that as {value} {unit}."
LISTED = f"ConfigMap {names.UNHEALTHY_NAMESPACE}/{names.UNHEALTHY_PREFIX}{{node}} lists it"
_NOT_MEMORY = re.compile(
    r"container (?P<name>\S+) asks (?P<asks>\S+), read as (?P<value>\d+) (?P<unit>\w+)\. "
    r'Write "(?P<write>\d+)"\.'
)
_WITH_SUFFIX = re.compile(r"([\d.]+)([kMGTPE])")
_MIB_IN_GIB = 1024


def invalid(said: Explanation, who: str, *, exists: bool) -> list[str]:
    """A request that means nothing, and what to write instead."""
    detail, way = event_texts.capital(said.detail), ""
    if found := _NOT_MEMORY.fullmatch(said.detail):
        detail = READ_AS.format(**found.groupdict())
        way = f'Write a plain number: "{found["write"]}"{_rounded(found)}.'
    rest = " ".join(filter(None, (way, _again(said) if exists else "")))
    return [f"{who} can never run: {said.message}. {detail}".rstrip(), *([f"  {rest}"] if rest else [])]


def _again(said: Explanation) -> str:
    key = _KEYS.get(said.code)
    if key is None or said.detail.startswith(_OF_CONTAINER):
        return AGAIN
    return ANNOTATE.format(name=said.pod.name, namespace=said.pod.namespace, key=key)


def _rounded(found: re.Match[str]) -> str:
    """Said only where a number of bytes is no whole number of units."""
    if int(found["value"]) % units.BYTES_IN[found["unit"]] == 0:
        return ""
    suffix = _WITH_SUFFIX.fullmatch(found["asks"])
    return f" ({suffix[1]} {suffix[2]}B, rounded up)" if suffix else f" ({found['asks']} bytes, rounded up)"


def too_large(said: Explanation, verdict: str) -> list[str]:
    """No GPU is large enough, full or not."""
    shrink = next((way for way in said.ways if way.way == "shrink"), None)
    if shrink is None or said.request is None:
        return [f"{verdict}: {said.message}."]
    unit, asked = ways.unit_of(said, shrink.node), said.request.shares[0].units
    in_gib = -(-asked // _MIB_IN_GIB)
    if unit == names.GIB and in_gib <= (shrink.units or 0):
        hint = f'The nodes of this cluster count in GiB: for {asked} MiB write "{in_gib}".'
        return [f"{verdict}: {said.message}. {hint}"]
    split = next((way for way in said.ways if way.way == "split"), None)
    more = f", or {ways.split(split, said)}" if split is not None else ""
    return [
        f"{verdict}: {said.message}. The largest is {shrink.units} {unit} ({shrink.node}).",
        f"  It would fit if it asked {shrink.units} {unit} or less{more}.",
    ]


def no_healthy(said: Explanation, verdict: str) -> list[str]:
    """A GPU has room, but is not well."""
    assert said.request is not None
    view = said.nodes[0]
    sick = usable(view, said.request.shares[0].units)
    if sick is None:
        return [f"{verdict}: {said.message}."]
    cause = LISTED.format(node=view.name) if sick.why == "listed" else sick.why
    back = f"that GPU came back ({cause})" if cause else "that GPU came back"
    freed = ways.freeing(said)
    has = f"{view.name} GPU {sick.index} has {of_total(sick, view.unit)}, but is unhealthy."
    return [
        f"{verdict}: {said.message}. {has}",
        f"  It would fit if {back}{f', or if {freed}' if freed else ''}.",
    ]
