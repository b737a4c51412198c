"""The annotation `gpushare.io/kept`: which GPUs are kept for a pod that has waited too long.

It is written for people, and for the next extender, which goes on where this one ended. Users may write it too, so an
extender accepts it only if it is the pod's turn by its own count.
"""

from typing import NamedTuple

import msgspec

from gpushare.core.facts import names
from gpushare.core.facts.model import PodFacts, Request

Keys = tuple[tuple[str, ...], ...]
"""For each share of a request, the GPUs by uuid."""


class KeptGpus(NamedTuple):
    node: str
    keys: Keys


class _Written(msgspec.Struct):
    node: str
    gpus: list[list[str]]  # of each container that asks, by uuid


def write(node: str, keys: Keys) -> str:
    return msgspec.json.encode(_Written(node, [list(chosen) for chosen in keys])).decode()


def read(pod: PodFacts) -> KeptGpus | None:
    """What the annotation says; None if there is none, or none that makes sense for this pod."""
    request, text = pod.request, pod.annotation(names.KEPT)
    if text is None or not isinstance(request, Request) or pod.node or pod.terminating or pod.finished:
        return None
    try:
        written = msgspec.json.decode(text, type=_Written)
    except (msgspec.MsgspecError, UnicodeError):
        return None
    wanted = [share.gpus for share in request.shares]
    if [len(set(keys)) for keys in written.gpus] != wanted or [len(keys) for keys in written.gpus] != wanted:
        return None
    return KeptGpus(written.node, tuple([tuple(keys) for keys in written.gpus]))
