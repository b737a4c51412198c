"""What the operator says of a node: labels, and the taint of GPU nodes. Pure.

Whose is a label? The API server knows: the operator applies its labels under a name of its own, and a person who
changes one takes it over. So the rule is: a value that is not empty and not ours is a person's, and stays. Only
`nvidia.com/gpu.present` is no setting but a fact, and is put right whoever wrote it.

Taints are one list, which has no owners within. So an annotation, written together with the list, says that our taint
is ours. A taint that was there before has no such annotation, and stays.
"""

from typing import Final, NamedTuple

from gpushare.core.facts import names
from gpushare.operator import managed
from gpushare.operator.desired.policy import Spec
from gpushare.operator.managed import Node, Taint

DEPLOYED: Final = (
    "driver",
    "container-toolkit",
    "device-plugin",
    "gpu-feature-discovery",
    "dcgm-exporter",
    "node-status-exporter",
    "operator-validator",
)
YES, NO = "true", "false"
TAINT: Final = Taint(*names.GPU_TAINT)


class Taints(NamedTuple):
    """`items` is the whole list. `ours`: our taint is among them."""

    items: tuple[Taint, ...]
    ours: bool


class Wanted(NamedTuple):
    """`labels`: all that the operator applies; others of its own go. `taints` None: they stay as they are. `ended`:
    those of our programs that have nothing to say there, so that what they said before goes."""

    labels: dict[str, str]
    taints: Taints | None = None
    ended: frozenset[str] = frozenset()


def is_gpu_node(node: Node) -> bool:
    labels = node.metadata.labels or {}
    return any(labels.get(key) == YES for key in names.PCI_LABELS)


def wanted(node: Node, spec: Spec | None) -> Wanted:
    """`spec` None: there is no policy, and nothing of the operator's stays. What its other programs wrote is taken back
    when they have ended (`node_writes.taken_back`)."""
    if spec is None:
        return Wanted({}, _taints(node, False))
    found = _of_operator(node, spec)
    return found._replace(ended=_ended(node, spec, found.labels))


def _of_operator(node: Node, spec: Spec) -> Wanted:
    labels = node.metadata.labels or {}
    if not is_gpu_node(node):
        had_gpus = names.GPU_PRESENT in labels
        return Wanted({names.GPU_PRESENT: NO} if had_gpus else {}, _taints(node, False))
    present = {names.GPU_PRESENT: YES}
    if labels.get(names.DEPLOY_NOTHING) == NO:
        return Wanted(present, _taints(node, False))
    ours = managed.labels(node, names.OPERATOR_MANAGER)
    settings = {key: value for key, value in _settings(spec).items() if key in ours or not labels.get(key)}
    return Wanted(present | settings, _taints(node, spec.daemonsets.taint))


def is_done(node: Node, want: Wanted) -> bool:
    """Whether nothing has to be written."""
    return want.taints is None and not want.ended and has_labels(node, want.labels)


def has_labels(node: Node, labels: dict[str, str]) -> bool:
    """Whether the operator owns exactly these, and they have these values."""
    there = node.metadata.labels or {}
    owned = managed.labels(node, names.OPERATOR_MANAGER)
    return owned == frozenset(labels) and all(there.get(key) == value for key, value in labels.items())


def takes_over(node: Node, labels: dict[str, str]) -> bool:
    """Whether one of these has another value. Somebody else may have written that; or he and the operator both did,
    and the operator has changed its mind."""
    there = node.metadata.labels or {}
    return any(there.get(key, value) != value for key, value in labels.items())


def _settings(spec: Spec) -> dict[str, str]:
    shared = names.SHARED_GPUS if spec.sharing.sell == "gpus" else names.SHARED_MEMORY
    parts = {f"{names.DEPLOY_PREFIX}{part}": YES for part in DEPLOYED}
    # The node part reads this one, so that it takes its labels back at once, and not when it is restarted.
    parts[names.DISCOVERED] = YES if spec.gfd.enabled else NO
    return {names.SHARED: shared} | parts


def _ended(node: Node, spec: Spec, labels: dict[str, str]) -> frozenset[str]:
    """Only those that really left something."""
    found = set()
    there = (node.metadata.labels or {}) | labels
    gpu_node = is_gpu_node(node)
    if not spec.finder.enabled:
        found.add(names.FINDER_MANAGER)
    if not gpu_node or there.get(names.DISCOVERED, YES) != YES:
        found.add(names.DISCOVERY_MANAGER)
    if not gpu_node or not spec.validator.enabled:
        found.add(names.VALIDATOR_MANAGER)
    return managed.managers(node) & found


def _taints(node: Node, want: bool) -> Taints | None:
    """The list as it should be, if anything has to be written."""
    there = node.spec.taints or ()
    same_place = [one for one in there if (one.key, one.effect) == (TAINT.key, TAINT.effect)]
    marked = names.TAINTED in (node.metadata.annotations or {})
    others = tuple(one for one in there if not (marked and one in same_place and one.value == TAINT.value))
    if not want:
        return Taints(others, False) if marked else None
    if same_place and not marked:
        return None  # a person's
    if same_place and same_place[0].value != TAINT.value:
        return Taints(there, False)  # ours, until a person changed it
    return None if same_place else Taints((*there, TAINT), True)
