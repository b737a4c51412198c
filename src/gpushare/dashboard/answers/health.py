"""How gpushare itself is: extender and node parts, pods whose GPU is not known, GPUs and containers to look at.

Pure. `ours.Seen` is what was read besides the snapshot. What could not be read is null, and a note says so.
"""

from collections import Counter
from collections.abc import Iterator

from gpushare.core.explain import event_texts
from gpushare.core.facts import policies
from gpushare.core.facts.model import Request
from gpushare.dashboard import standing
from gpushare.dashboard.allowed import Allowed, is_allowed
from gpushare.dashboard.answers import ours
from gpushare.dashboard.answers.body import Body
from gpushare.dashboard.answers.body import names as shown_names
from gpushare.dashboard.answers.ours import Event, OurPod, Seen
from gpushare.view import usage, wording
from gpushare.view.snapshot import Snapshot
from gpushare.view.usage import NodeUse
from gpushare.view.why.stuck import DEFAULT_SCHEDULER

MOST = 500  # rows of each list
NOT_READ = "{what} could not be read: {effect}."
OUR_PODS, EVENTS, POLICIES = (
    ("gpushare's own pods", "extender and versions are not known"),
    ("events", "audit findings are not known"),
    ("ClusterPolicies", "it is not known whether the operator is used"),
)
READY = "Ready"


class ExtenderPod(Body):
    namespace: str
    pod: str
    ready: bool


class Extender(Body):
    """`pods`: those that the reader may see. `count`: all; more than one leader would count separately."""

    found: bool
    ready: bool | None
    namespace: str | None
    version: str
    policy: str
    unit: str  # that nodes count in
    image: str
    count: int
    pods: list[ExtenderPod]


class Scheduler(Body):
    """A scheduler that pods with GPUs name, and how many do; only of pods that the reader may see."""

    name: str
    pods: int


class Version(Body):
    version: str
    nodes: int


class Policy(Body):
    policy: str
    pods: int


class Unplaced(Body):
    namespace: str | None
    pod: str | None
    node: str
    why: str


class Unhealthy(Body):
    node: str
    gpu: int
    why: str
    pods: int


class Over(Body):
    node: str
    gpu: int
    namespace: str | None
    pod: str | None
    container: str | None
    over: int


class Audit(Body):
    """A problem that the audit of a node found. `message` is general if the reader may not see the pods it is about."""

    node: str | None
    namespace: str | None
    pod: str | None
    reason: str
    message: str
    time: str
    count: int


class ClusterPolicy(Body):
    name: str
    state: str
    message: str


class HealthPage(Body):
    extender: Extender | None
    schedulers: list[Scheduler]
    nodes: dict[str, int]  # by who pins
    versions: list[Version] | None
    policies: list[Policy]
    unplaced: list[Unplaced]
    unhealthy: list[Unhealthy]
    over: list[Over]
    audit: list[Audit] | None
    cluster_policy: ClusterPolicy | None
    watch: object
    notes: list[str]


def namespaces(cluster: Snapshot, seen: Seen) -> frozenset[str]:
    """Those of all pods that could be named."""
    named = {pod.namespace for pod in cluster.asking}
    named |= {pod.metadata.namespace for pod in seen.pods or ()}
    return frozenset(named | {event.involved_object.namespace for event in seen.events or ()} - {""})


def answer(cluster: Snapshot, seen: Seen, watch: object, allowed: Allowed) -> HealthPage:
    """`watch`: how old the snapshot is, as it is shown."""
    uses = usage.nodes(cluster)
    missing = [
        NOT_READ.format(what=what, effect=effect)
        for (what, effect), read in ((OUR_PODS, seen.pods), (EVENTS, seen.events), (POLICIES, seen.policies))
        if read is None
    ]
    return HealthPage(
        extender=_extender(seen.pods, uses, allowed) if seen.pods is not None else None,
        schedulers=_schedulers(cluster, allowed),
        nodes=_pins(cluster, uses),
        versions=_versions(seen.pods) if seen.pods is not None else None,
        policies=_policies(cluster),
        unplaced=list(_unplaced(uses, allowed))[:MOST],
        unhealthy=list(_unhealthy(cluster))[:MOST],
        over=list(_over(uses, allowed))[:MOST],
        audit=_audit(seen.events, allowed) if seen.events is not None else None,
        cluster_policy=_cluster_policy(seen),
        watch=watch,
        notes=missing,
    )


def _extender(pods: list[OurPod], uses: list[NodeUse], allowed: Allowed) -> Extender:
    found = [(pod, container) for pod in pods if (container := ours.running(pod, ours.EXTENDER)) is not None]
    units = " and ".join(sorted({use.unit for use in uses}, reverse=True))
    if not found:
        return Extender(False, None, None, "", "", units, "", 0, [])
    first, container = found[0]
    shown = [
        ExtenderPod(pod.metadata.namespace, pod.metadata.name, pod.ready)
        for pod, _ in found
        if is_allowed(allowed, pod.metadata.namespace)
    ]
    return Extender(
        found=True,
        ready=any(pod.ready for pod, _ in found),
        namespace=shown_names(first.metadata.namespace, "", allowed)[0],
        version=ours.version(container.image),
        policy=ours.option(container, "--policy") or policies.DEFAULT,
        unit=units,
        image=container.image,
        count=len(found),
        pods=shown,
    )


def _schedulers(cluster: Snapshot, allowed: Allowed) -> list[Scheduler]:
    asking = {pod.uid for pod in cluster.asking}
    named = Counter(
        pod.spec.scheduler_name or DEFAULT_SCHEDULER
        for pod in cluster.pods
        if pod.metadata.uid in asking and is_allowed(allowed, pod.metadata.namespace)
    )
    return [Scheduler(name, count) for name, count in named.most_common(MOST)]


def _pins(cluster: Snapshot, uses: list[NodeUse]) -> dict[str, int]:
    """Of the nodes that share GPU memory, and of those that publish what they sell by count."""
    sharing = {use.name: standing.pin(use.facts, use) for use in uses}
    publishing = {state.name: state.facts.pin for state in cluster.ledger.nodes() if state.facts is not None}
    return dict(Counter(pin.value for pin in (publishing | sharing).values()))


def _versions(pods: list[OurPod]) -> list[Version]:
    """Of the parts on nodes, by the tags of their images."""
    on_nodes = [(pod, container) for pod in pods if (container := ours.running(pod, ours.NODE_PART)) is not None]
    nodes: dict[str, set[str]] = {}
    for pod, container in on_nodes:
        nodes.setdefault(ours.version(container.image), set()).add(pod.spec.node_name or "")
    counted = [Version(version, len(there)) for version, there in nodes.items()]
    return sorted(counted, key=lambda one: (-one.nodes, one.version))


def _policies(cluster: Snapshot) -> list[Policy]:
    """Of the pods that name one."""
    named = Counter(
        pod.request.policy for pod in cluster.asking if isinstance(pod.request, Request) and not pod.finished
    )
    return [Policy(policy, count) for policy, count in named.most_common() if policy]


def _unplaced(uses: list[NodeUse], allowed: Allowed) -> Iterator[Unplaced]:
    for use in uses:
        for pod in use.pods:
            if pod.why:
                yield Unplaced(*shown_names(pod.pod.namespace, pod.pod.name, allowed), use.name, pod.why)


def _unhealthy(cluster: Snapshot) -> Iterator[Unhealthy]:
    for state in sorted(cluster.ledger.nodes(), key=lambda state: state.name):
        for place, gpu in enumerate(state.facts.gpus if state.facts is not None else ()):
            if not gpu.healthy:
                there = sum(charge.gpu == place for holding in state.holdings() for charge in holding.charges or ())
                yield Unhealthy(state.name, gpu.index, gpu.why, there)


def _over(uses: list[NodeUse], allowed: Allowed) -> Iterator[Over]:
    """Containers that use more than they were given, the worst of a node first. Pods that are gone may still be in what
    was published last."""
    for use in uses:
        there = {pod.pod.uid for pod in use.pods}
        for over in sorted(use.measured.over if use.measured is not None else (), key=lambda one: -one.by):
            if over.of.uid in there:
                namespace, pod = shown_names(over.of.namespace, over.of.pod, allowed)
                container = over.of.container if pod is not None else None
                yield Over(use.name, over.gpu, namespace, pod, container, over.by)


def _audit(events: list[Event], allowed: Allowed) -> list[Audit]:
    """What audits found, the latest first. The same is told again while it lasts: it is one row."""
    rows: dict[tuple[str, str, str, str, str], Audit] = {}
    for event in sorted(events, key=lambda event: wording.timestamp(event.time)):
        row = _finding(event, allowed) if event.reason in event_texts.AUDIT_CODES and event.is_ours else None
        if row is not None:
            key = (row.node or "", row.namespace or "", row.pod or "", row.reason, row.message)
            row.count += rows[key].count if key in rows else 0
            rows.pop(key, None)
            rows[key] = row
    return list(reversed(rows.values()))[:MOST]


def _finding(event: Event, allowed: Allowed) -> Audit | None:
    """Events about nodes may name any pod: who may not see all pods reads what the problem is, and no name."""
    about, reason = event.involved_object, event.reason or ""
    count, message = max(event.count or 1, 1), wording.printable(event.message or "")
    if about.kind == "Node":
        words = message if allowed is None else event_texts.AUDIT_MEANINGS[reason]
        return Audit(about.name, None, None, reason, words, event.time, count)
    if about.kind != "Pod" or not is_allowed(allowed, about.namespace):
        return None
    return Audit(None, about.namespace, about.name, reason, message, event.time, count)


def _cluster_policy(seen: Seen) -> ClusterPolicy | None:
    """The one that counts: the others are ignored."""
    found = [one for one in seen.policies or () if one.status.state != "ignored"] or list(seen.policies or ())
    if not found:
        return None
    first = min(found, key=lambda one: (one.metadata.creation_timestamp or "", one.metadata.name))
    message = next((one.message or "" for one in first.status.conditions or () if one.type == READY), "")
    return ClusterPolicy(first.metadata.name, first.status.state, wording.printable(message))
