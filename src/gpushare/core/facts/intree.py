"""What kube-scheduler checks by itself before it asks an extender: may this pod go to this node, GPU memory aside?

Only the checks that most often keep a pod away: cordon, taints, `nodeSelector`, required node affinity, and the totals
of CPU, memory, pods and extended resources. Affinity to other pods, volumes, ports, spreading and pod overhead are not
checked. Pure. `gpushare why` and the stand-in scheduler ask for `obstacles`, in the words of kube-scheduler 1.34 and
later; the extender asks which nodes admit a pod.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from math import ceil, floor

import msgspec

from gpushare.core.facts import affinity, names, objects, units
from gpushare.core.facts.model import Data, Rules
from gpushare.core.facts.objects import Taint, Term, Toleration

CORDONED = "Cordoned"
TAINT = "Taint"
NODE_SELECTOR = "NodeSelector"
NODE_AFFINITY = "NodeAffinity"
INSUFFICIENT = "Insufficient"

UNSCHEDULABLE = "node(s) were unschedulable"
UNTOLERATED = "node(s) had untolerated taint(s)"
NOT_SELECTED = "node(s) didn't match Pod's node affinity/selector"
NOT_NAMED = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
TOO_LITTLE = "Insufficient {resource}"
TOO_MANY_PODS = "Too many pods"

CPU, MEMORY, STORAGE, PODS = "cpu", "memory", "ephemeral-storage", "pods"
_KEEPS_OFF = ("NoSchedule", "NoExecute")  # PreferNoSchedule only lowers a node's score
_CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_NO_RULES = Rules()
_MILLI = 1000
_MI, _GI = 1 << 20, 1 << 30


class SchedulingGate(objects.Struct):
    name: str = ""


class PodSpec(objects.PodSpec):
    scheduling_gates: list[SchedulingGate] | None = None


class Pod(objects.Pod):
    spec: PodSpec = msgspec.field(default_factory=PodSpec)


Node = objects.Node


class NodeRules(Data, frozen=True):
    """The part of a node that decides which pods may go there, GPUs and totals aside."""

    name: str
    labels: dict[str, str]
    taints: tuple[Taint, ...]  # that keep pods off
    unschedulable: bool
    soft_taints: tuple[Taint, ...] = ()  # that only lower its score
    supply: tuple[int, int, int] = (0, 0, 0)  # CPU, memory, storage for all pods, in the units of `needs`
    reserved: bool = False  # its annotation says so; whether that counts, the policy says


class Obstacle(Data, frozen=True):
    """One thing between a pod and a node."""

    code: str
    message: str  # kube-scheduler's words in the pod's condition
    detail: str  # for people who read `why`
    subject: str  # which taint, label or resource


def obstacles(pod: Pod, node: Node, taken: Mapping[str, int]) -> list[Obstacle]:
    """Everything that keeps the pod off the node, in kube-scheduler's order. `taken`: `totals` of the node's pods."""
    tolerations, rules, terms = pod.spec.tolerations or (), node_rules(node), pod.spec.required_terms
    by_name = terms is not None and affinity.names_others(terms, rules.name)  # kube-scheduler looks at no other node
    return [
        *(_affinity(terms, rules, NOT_NAMED) if by_name else ()),
        *_cordon(tolerations, rules),
        *_taints(tolerations, rules),
        *_selector(pod.spec.node_selector or {}, rules),
        *(() if by_name else _affinity(terms, rules, NOT_SELECTED)),
        *_shortages(needs(pod), node, taken),
    ]


def node_rules(node: Node) -> NodeRules:
    taints = tuple(taint for taint in node.spec.taints or () if taint.effect in _KEEPS_OFF)
    soft = tuple(taint for taint in node.spec.taints or () if taint.effect not in _KEEPS_OFF)
    has, labels, notes = node.status.allocatable or {}, node.metadata.labels or {}, node.metadata.annotations or {}
    cpu, memory, storage = (_whole(name, has.get(name, 0)) for name in (CPU, MEMORY, STORAGE))
    return NodeRules(
        node.metadata.name, labels, taints, node.spec.unschedulable, soft, (cpu, memory, storage),
        reserved=bool(notes.get(names.RESERVED)),
    )  # fmt: skip


def admits(rules: Rules | None, node: NodeRules) -> bool:
    """Whether cordon, taints, `nodeSelector`, required node affinity and our annotation let a pod go to a node. `rules`
    None: the pod may use any node, and tolerates nothing."""
    rules = rules or _NO_RULES
    if rules.node and rules.node != node.name:
        return False
    if rules.selector and any(node.labels.get(key) != value for key, value in rules.selector):
        return False
    if rules.terms is not None and not any(affinity.meets(term, node.labels, node.name) for term in rules.terms):
        return False
    if not node.taints and not node.unschedulable:
        return True
    return not any((*_cordon(rules.tolerations, node), *_taints(rules.tolerations, node)))


def reasons(obstacles: list[Obstacle]) -> list[str]:
    """What kube-scheduler says of a node with these obstacles: it stops at the first check that fails."""
    return list(dict.fromkeys(obstacle.message for obstacle in obstacles if obstacle.code == obstacles[0].code))


def needs(pod: objects.Pod) -> dict[str, int]:
    """What a pod counts for in a node's totals: CPU in thousandths, the rest in whole units.

    Init containers run one after the other, beside the sidecars started before them. Then all other containers run
    together. The larger of the two counts.
    """
    first: dict[str, int] = {}
    beside: dict[str, int] = {}
    for container in pod.spec.init_containers or ():
        if container.restart_policy == "Always":
            _add(beside, _asked(container))
            now = beside
        else:
            now = dict(beside)
            _add(now, _asked(container))
        first = _larger(first, now)
    for container in pod.spec.containers or ():
        _add(beside, _asked(container))
    return _larger(first, beside)


def totals(pods: Iterable[objects.Pod]) -> dict[str, int]:
    """What the pods of a node take together, and their number under `pods`. Pods that have ended take nothing."""
    taken = {PODS: 0}
    for pod in pods:
        if pod.status.phase not in objects.FINISHED:
            _add(taken, needs(pod))
            taken[PODS] += 1
    return taken


def offered(node: objects.Node) -> dict[str, int]:
    """What a node has for pods, in the units of `needs`."""
    return {name: _whole(name, amount) for name, amount in (node.status.allocatable or {}).items()}


def _cordon(tolerations: Sequence[Toleration], node: NodeRules) -> Iterator[Obstacle]:
    if node.unschedulable and not any(toleration.covers(_CORDON) for toleration in tolerations):
        yield Obstacle(CORDONED, UNSCHEDULABLE, "cordoned", "cordon")


def _taints(tolerations: Sequence[Toleration], node: NodeRules) -> Iterator[Obstacle]:
    for taint in node.taints:
        if node.unschedulable and taint.key == _CORDON.key:
            continue  # a controller sets it on every cordoned node; `_cordon` has checked that
        if not any(toleration.covers(taint) for toleration in tolerations):
            yield Obstacle(TAINT, UNTOLERATED, f"taint {taint} not tolerated", str(taint))


def _selector(wanted: Mapping[str, str], node: NodeRules) -> Iterator[Obstacle]:
    for key, value in sorted(wanted.items()):
        if node.labels.get(key) != value:
            label = f"{key}={value}"
            yield Obstacle(NODE_SELECTOR, NOT_SELECTED, f"nodeSelector {label} does not match", label)


def _affinity(terms: Sequence[Term] | None, node: NodeRules, message: str) -> Iterator[Obstacle]:
    if terms is None or any(affinity.meets(term, node.labels, node.name) for term in terms):
        return
    missed = affinity.missed(terms[0], node.labels, node.name) if len(terms) == 1 else []
    for condition in map(affinity.written, missed):
        yield Obstacle(NODE_AFFINITY, message, f"node affinity {condition} does not match", condition)
    if not missed:
        yield Obstacle(NODE_AFFINITY, message, "no term of its node affinity matches", "node affinity")


def _shortages(asked: Mapping[str, int], node: Node, taken: Mapping[str, int]) -> Iterator[Obstacle]:
    offers = offered(node)
    there, room = taken.get(PODS, 0), offers.get(PODS, 0)
    if there + 1 > room:
        yield Obstacle(INSUFFICIENT, TOO_MANY_PODS, f"pods: {there} of {room} are there already", PODS)
    for resource in sorted(asked, key=_rank):
        total = offers.get(resource, 0)
        free = total - taken.get(resource, 0)
        if asked[resource] > 0 and free < asked[resource]:
            message = TOO_LITTLE.format(resource=resource)
            yield Obstacle(INSUFFICIENT, message, _shortage(resource, asked[resource], max(free, 0), total), resource)


def _rank(resource: str) -> tuple[int, str]:
    order = (CPU, MEMORY, STORAGE)
    return order.index(resource) if resource in order else len(order), resource


def _asked(container: objects.Container) -> dict[str, int]:
    """Requests; where one is missing, the limit, as the API server fills it in."""
    resources = container.resources or objects.ResourceNeeds()
    amounts = (resources.limits or {}) | (resources.requests or {})
    return {name: _whole(name, amount) for name, amount in amounts.items()}


@lru_cache(4096)  # pods ask for the same few amounts, and exact numbers cost time
def _whole(resource: str, quantity: objects.Quantity) -> int:
    """Rounded up, as kube-scheduler counts. An unreadable amount is 0: no API server accepts one."""
    amount = units.exact(quantity) or 0
    return ceil(amount * _MILLI if resource == CPU else amount)


def _add(sums: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        sums[name] = sums.get(name, 0) + amount


def _larger(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in (*one, *other)}


def _shortage(resource: str, asked: int, free: int, total: int) -> str:
    """`cpu: asks 4, 1.5 of 8 free`. The request is rounded up and the rest down, so that the request stays larger."""
    if resource == CPU:
        size, unit = _MILLI, ""
    elif resource in (MEMORY, STORAGE) or resource.startswith("hugepages-"):
        size, unit = (_GI, "Gi") if asked >= _GI else (_MI, "Mi")
    else:
        size, unit = 1, ""
    wants, has, of = (_decimal(Fraction(n, size), to) for n, to in ((asked, ceil), (free, floor), (total, floor)))
    return f"{resource}: asks {wants}{unit}, {has}{unit} of {of}{unit} free"


def _decimal(amount: Fraction, to: Callable[[Fraction], int]) -> str:
    """With up to three decimals, without zeros at the end: `1.5`, `8`."""
    return f"{to(amount * 1000) / 1000:.3f}".rstrip("0").rstrip(".")
