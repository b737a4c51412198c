"""kube-scheduler's extender protocol: bytes to what was asked, and answers to bytes.

Schedulers write PascalCase keys, those before 1.17 lower case keys. Go reads both, and so do we. The usual form is
decoded directly into slim structs; anything else is respelled first, which is slower.
"""

from collections.abc import Collection, Sequence
from typing import TypeVar

import msgspec

from gpushare.core.facts import objects
from gpushare.core.order import offer as offers

NAMES_BEGIN, NAMES_END = b',"NodeNames":["', b'"]}'
IN_NAMES = b"abcdefghijklmnopqrstuvwxyz0123456789-."
LONGEST_NAME = 256  # bytes, with what is between two
NOT_JSON = "the request is not what a scheduler sends: {error}"
T = TypeVar("T")


class BadRequest(Exception):
    """This is not a request of a scheduler; the text says why."""


class NodeItem(msgspec.Struct, gc=False):
    metadata: objects.Metadata = msgspec.field(default_factory=objects.Metadata)


class NodeList(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


class Args(msgspec.Struct, rename="pascal"):
    """Filter and prioritize."""

    pod: objects.Pod | None = None
    nodes: NodeList | None = None
    node_names: list[str] | None = None


class BindArgs(msgspec.Struct):
    pod_name: str = msgspec.field(name="PodName", default="")
    pod_namespace: str = msgspec.field(name="PodNamespace", default="")
    pod_uid: str = msgspec.field(name="PodUID", default="")
    node: str = msgspec.field(name="Node", default="")


class MetaPod(msgspec.Struct):
    uid: str = msgspec.field(name="UID", default="")


class MetaVictims(msgspec.Struct):
    pods: list[MetaPod] | None = msgspec.field(name="Pods", default=None)
    violations: int = msgspec.field(name="NumPDBViolations", default=0)


class AnyVictim(msgspec.Struct):
    """A victim as it may come: by uid, by uid in the old spelling, or as a whole pod."""

    new: str = msgspec.field(name="UID", default="")
    old: str = msgspec.field(name="uid", default="")
    metadata: objects.Metadata = msgspec.field(default_factory=objects.Metadata)


class AnyVictims(msgspec.Struct):
    new: list[AnyVictim] | None = msgspec.field(name="Pods", default=None)
    old: list[AnyVictim] | None = msgspec.field(name="pods", default=None)
    new_violations: int = msgspec.field(name="NumPDBViolations", default=0)
    old_violations: int = msgspec.field(name="numPDBViolations", default=0)

    def meta(self) -> MetaVictims:
        pods = [MetaPod(pod.new or pod.old or pod.metadata.uid) for pod in self.new or self.old or ()]
        return MetaVictims(pods, self.new_violations or self.old_violations)


class PreemptArgs(msgspec.Struct):
    pod: objects.Pod | None = msgspec.field(name="Pod", default=None)
    by_uid: dict[str, AnyVictims] | None = msgspec.field(name="NodeNameToMetaVictims", default=None)
    whole: dict[str, AnyVictims] | None = msgspec.field(name="NodeNameToVictims", default=None)
    old: dict[str, AnyVictims] | None = msgspec.field(name="NodeToVictims", default=None)  # before 1.17

    def victims(self) -> dict[str, MetaVictims]:
        """The victims by uid, in whichever form they came."""
        given = self.by_uid if self.by_uid is not None else self.whole if self.whole is not None else self.old
        return {node: victims.meta() for node, victims in (given or {}).items()}


class FilterResult(msgspec.Struct):
    nodes: NodeList | None = msgspec.field(name="Nodes", default=None)
    node_names: list[str] | None = msgspec.field(name="NodeNames", default=None)
    failed: dict[str, str] = msgspec.field(name="FailedNodes", default_factory=dict)
    unresolvable: dict[str, str] = msgspec.field(name="FailedAndUnresolvableNodes", default_factory=dict)
    error: str = msgspec.field(name="Error", default="")


class HostPriority(msgspec.Struct):
    host: str = msgspec.field(name="Host")
    score: int = msgspec.field(name="Score")


class PreemptResult(msgspec.Struct):
    nodes: dict[str, MetaVictims] = msgspec.field(name="NodeNameToMetaVictims")


class Offer(offers.Offer):
    """The nodes a scheduler offers; `whole` keeps the objects when those were sent and are wanted back."""

    def __init__(self, names: Sequence[str], whole: dict[str, msgspec.Raw] | None = None) -> None:
        super().__init__(names)
        self.whole = whole

    def result(self, fits: list[str], failed: dict[str, str], unresolvable: dict[str, str]) -> FilterResult:
        """The answer in the form that was asked."""
        if self.whole is None:
            return FilterResult(None, fits, failed, unresolvable)
        return FilterResult(NodeList([self.whole[name] for name in fits]), None, failed, unresolvable)


class UnreadOffer(Offer):
    """Names as they came: `a","b","c` is three of them. To look for one of them there is faster than to read all."""

    look_ups = 3

    def __init__(self, text: bytes) -> None:
        super().__init__(())
        self._names, self._text = None, b'"%b"' % text

    def _decoded(self) -> Sequence[str]:
        return _names.decode(b"[%b]" % self._text)

    def _has(self, node: str) -> bool:
        return b'"%b"' % node.encode() in self._text and '"' not in node and node != ","

    def few(self, most: int) -> Collection[str] | None:
        return None if len(self._text) > most * LONGEST_NAME else super().few(most)


_args = msgspec.json.Decoder(Args)
_bind = msgspec.json.Decoder(BindArgs)
_preempt = msgspec.json.Decoder(PreemptArgs)
_names = msgspec.json.Decoder(list[str])
_item = msgspec.json.Decoder(NodeItem)
_pod = msgspec.json.Decoder(objects.Pod)
_loose = msgspec.json.Decoder(dict[str, msgspec.Raw])
encode = msgspec.json.Encoder().encode


def read_few(body: bytes) -> tuple[objects.Pod, Offer]:
    """The same as `read_args`, for who needs few of the names or none."""
    return _usual(body) or read_args(body)


def read_args(body: bytes) -> tuple[objects.Pod, Offer]:
    args = _decode(_args, body)
    if args.pod is None or (args.node_names is None and args.nodes is None):
        args = _decode(_args, _spelled(body, ("Pod", "Nodes", "NodeNames")))
    if args.pod is None:
        raise BadRequest("no Pod is given")
    if args.node_names is not None:
        return args.pod, Offer(args.node_names)
    if args.nodes is None:
        raise BadRequest("neither NodeNames nor Nodes is given")
    whole = {_name(item): item for item in args.nodes.items or ()}
    return args.pod, Offer(list(whole), whole)


def _usual(body: bytes) -> tuple[objects.Pod, Offer] | None:
    """The form in which kube-scheduler sends names: they come last, and are plain. So they need not be read. None: it
    is another form, or wrong. What is left without the names must be read without them, so nothing is overlooked."""
    at = body.find(NAMES_BEGIN)
    if at < 0 or not body.endswith(NAMES_END):
        return None
    text = body[at + len(NAMES_BEGIN) : -len(NAMES_END)]
    between = text.translate(None, IN_NAMES)
    if between != b'","' * (len(between) // 3):
        return None
    try:
        args = _args.decode(body[:at] + b"}")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if args.pod is None or args.node_names is not None:
        return None
    return args.pod, UnreadOffer(text)


def read_bind(body: bytes) -> BindArgs:
    args = _decode(_bind, body)
    if not (args.pod_name and args.pod_namespace and args.pod_uid and args.node):
        args = _decode(_bind, _spelled(body, ("PodName", "PodNamespace", "PodUID", "Node")))
    given = {"PodName": args.pod_name, "PodNamespace": args.pod_namespace, "PodUID": args.pod_uid, "Node": args.node}
    missing = [name for name, value in given.items() if not value]
    if missing:
        raise BadRequest(f"no {missing[0]} is given")
    return args


def read_preempt(body: bytes) -> PreemptArgs:
    args = _decode(_preempt, body)
    if args.pod is None or (args.by_uid is None and args.whole is None):
        names = ("Pod", "NodeNameToMetaVictims", "NodeNameToVictims", "NodeToVictims")
        args = _decode(_preempt, _spelled(body, names))
    if args.pod is None:
        raise BadRequest("no Pod is given")
    return args


def read_pod(body: bytes) -> objects.Pod:
    return _decode(_pod, body)


def _decode(decoder: "msgspec.json.Decoder[T]", body: bytes) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(NOT_JSON.format(error=str(error)[:200])) from None


def _spelled(body: bytes, names: tuple[str, ...]) -> bytes:
    """The same object with its keys spelled as we expect them."""
    known = {name.lower(): name for name in names}
    given = _decode(_loose, body)
    return encode({known.get(key.lower(), key): value for key, value in given.items()})


def _name(item: msgspec.Raw) -> str:
    try:
        bytes(item).decode()  # it is sent back as it is, so it must be text
        return _item.decode(item).metadata.name
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadRequest(NOT_JSON.format(error=str(error)[:200])) from None
