"""A pod that asks for GPUs by number (nvidia.com/gpu and the like): what is known about it, and what would help.

Pure, from a `Snapshot`. The extender decides nothing about such a pod: kube-scheduler counts what each node sells, as
`view.sold` does here, and makes its other checks. So every "no" is kube-scheduler's.
"""

from collections.abc import Collection, Iterator, Mapping

import msgspec

from gpushare.core.explain import placed, report, verdict, views
from gpushare.core.explain.report import AskView, Explanation, Holder, NodeView, Outcome, Reason, SoldView, Way
from gpushare.core.facts import names, objects, request, units
from gpushare.core.facts.intree import Obstacle
from gpushare.core.placement import fit
from gpushare.view import by_count, sold
from gpushare.view.by_count import Asks, Offer
from gpushare.view.snapshot import Snapshot
from gpushare.view.why import pod_details, scheduler_checks
from gpushare.view.why.evidence import Evidence
from gpushare.view.why.scheduler_checks import Obstacles, SchedulerChecks

Offers = Mapping[str, Offer]


def gather(
    cluster: Snapshot, checks: SchedulerChecks, pod: pod_details.Pod, *, among: Collection[str] | None = None
) -> Evidence:
    """`among`: the only nodes that count."""
    asks, offers = sold.asked(pod), by_count.offers(checks.sold)
    if pod.spec.node_name or pod.status.phase in objects.FINISHED:
        return Evidence(pod, has_node(pod, offers.get(pod.spec.node_name or "")))
    if among is not None:
        offers = {name: offers.get(name, {}) for name in among}
    obstacles = {name: _others(checks.all_on(name, pod), asks) for name in offers}
    nodes = [_view(name, asks, offer, obstacles[name]) for name, offer in offers.items()]
    nodes.sort(key=lambda node: (not node.fits, node.scheduler is not None, *_distance(node, asks), node.name))
    nodes += _out_of_the_ledger(cluster, among)
    refused = by_count.refusal(asks, list(offers.values()), alone=among is not None)
    if refused is None:
        outcome, ways = _fitting([node for node in nodes if node.fits], nodes, obstacles)
    else:
        outcome = Outcome(
            "never" if refused.forever else "refused", report.SCHEDULER, refused.code, refused.message, refused.detail
        )
        free = {name: offer for name, offer in offers.items() if not obstacles[name]}
        ways = [*_ways(asks, free), *(_by_memory(cluster, checks, pod, asks) if among is None else ())]
    by_memory, without_gpu = _not_listed(cluster, nodes) if among is None else (0, 0)
    part = _part(pod, outcome)
    return Evidence(
        pod, msgspec.structs.replace(part, nodes=nodes, ways=ways, by_memory=by_memory, without_gpu=without_gpu)
    )


def has_node(pod: pod_details.Pod, offer: Offer | None) -> Explanation:
    """A pod that has its node, or has ended. `offer`: what that node sells, if it is known."""
    phase, node = pod.status.phase or "Pending", pod.spec.node_name or ""
    if phase in objects.FINISHED:
        return _part(pod, Outcome("runs", report.KUBELET, report.ENDED, placed.HAS_ENDED.format(phase=phase)))
    part = _part(pod, Outcome("runs", report.SCHEDULER, report.BOUND, f"has {node}"))
    return msgspec.structs.replace(part, nodes=[_view(node, sold.asked(pod), offer, [])]) if offer else part


def marked(part: Explanation, pod: pod_details.Pod) -> Explanation:
    """A part with what the pod asks by count."""
    return msgspec.structs.replace(part, asks=_asks(pod))


def _part(pod: pod_details.Pod, outcome: Outcome) -> Explanation:
    return marked(views.gpushare_part(request.facts(pod, None), outcome), pod)


def _asks(pod: pod_details.Pod) -> list[AskView]:
    containers = [*(pod.spec.init_containers or ()), *(pod.spec.containers or ())]
    limits = [(one.name, one.resources.limits if one.resources is not None else None) for one in containers]
    return [
        AskView(container, resource, amount)
        for container, written in limits
        for resource in sold.asked(pod)
        if (amount := units.number(written, resource))
    ]


def _others(obstacles: list[Obstacle], asks: Asks) -> list[Obstacle]:
    """Without those that say again what the count of GPUs says."""
    return [obstacle for obstacle in obstacles if obstacle.subject not in asks]


def _view(name: str, asks: Asks, offer: Offer, obstacles: list[Obstacle]) -> NodeView:
    short = by_count.short(asks, offer)
    shown = [
        SoldView(resource, use.total, use.free, short.get(resource, 0), use.unhealthy, use.sharing)
        for resource, use in sorted(offer.items(), key=lambda item: (item[0] not in asks, item[0]))
    ]
    return NodeView(name, not short, None, None, scheduler_checks.reason(obstacles), [], sold=shown)


def _distance(node: NodeView, asks: Asks) -> tuple[int, int]:
    """How many of the asked resources it does not sell, and how many pieces it lacks."""
    unsold = len(asks.keys() - {view.resource for view in node.sold})
    return unsold, sum(view.short for view in node.sold)


def _out_of_the_ledger(cluster: Snapshot, among: Collection[str] | None) -> list[NodeView]:
    """Nodes that sell nvidia.com/gpu as well, but only to pods that admission has prepared."""
    policy = Reason(fit.NEEDS_POLICY.code, fit.NEEDS_POLICY.message)
    return [
        NodeView(state.name, False, None, policy, None, [])
        for state in cluster.ledger.nodes()
        if state.facts is not None and state.facts.nvidia_whole and (among is None or state.name in among)
    ]


def _not_listed(cluster: Snapshot, nodes: list[NodeView]) -> tuple[int, int]:
    """How many other nodes share their GPUs by memory, and how many have none."""
    listed = {node.name for node in nodes}
    others = [node.metadata.name for node in cluster.nodes if node.metadata.name not in listed]
    by_memory = sum(cluster.ledger.facts(name) is not None for name in others)
    return by_memory, len(others) - by_memory


def _fitting(fitting: list[NodeView], nodes: list[NodeView], obstacles: Obstacles) -> tuple[Outcome, list[Way]]:
    if not obstacles[fitting[0].name]:  # those that kube-scheduler may use come first
        return verdict.FITS._replace(owner=report.SCHEDULER), [Way("wait", node=fitting[0].name)]
    return verdict.kept_off(fitting, one_gpu=False), scheduler_checks.tolerate(nodes, obstacles)


def _ways(asks: Asks, free: Offers) -> list[Way]:
    """What would help on the nodes that nothing else keeps the pod off."""
    if len(asks) > 1:
        return [*_healing(asks, free), *_ending(asks, free)]
    ((resource, amount),) = asks.items()
    sellers = [offer[resource] for offer in free.values() if resource in offer]
    most = max(sellers, key=lambda use: use.free, default=None)
    shrink = [Way("shrink", node=most.node, units=most.free)] if most is not None and most.free else []
    return [*shrink, *_healing(asks, free), *_ending(asks, free), *_asking(resource, amount, free)]


def _healing(asks: Asks, free: Offers) -> Iterator[Way]:
    """The first node that would have enough if its GPUs were healthy again."""
    for name, offer in free.items():
        short = by_count.short(asks, offer)
        if all(resource in offer and offer[resource].unhealthy >= amount for resource, amount in short.items()):
            yield Way("heal", node=name)
            return


def _ending(asks: Asks, free: Offers) -> Iterator[Way]:
    """The node with the fewest pieces to come free of the one resource that it lacks: pods of which one would do, or
    all that hold some."""
    lacking = [(by_count.short(asks, offer), name) for name, offer in free.items() if by_count.could(asks, offer)]
    full = [
        (amount, name, resource) for short, name in lacking if len(short) == 1 for resource, amount in short.items()
    ]
    full = [(amount, name, resource) for amount, name, resource in full if free[name][resource].total >= asks[resource]]
    if not full:
        return
    amount, name, resource = min(full)
    holders = sorted(
        (
            Holder(
                f"{buyer.pod.metadata.namespace}/{buyer.pod.metadata.name}", buyer.amount, buyer.pod.spec.priority or 0
            )
            for buyer in free[name][resource].buyers
        ),
        key=lambda holder: (holder.priority, holder.units, holder.pod),
    )
    enough = [holder for holder in holders if holder.units >= amount]
    named = enough or holders
    pods = [holder.pod for holder in named]
    yield Way("end" if enough else "free", node=name, units=None if enough else amount, pods=pods, holders=named)


def _asking(resource: str, amount: int, free: Offers) -> Iterator[Way]:
    """The same GPUs under the other name: nvidia.com/gpu where replicas are not renamed, nvidia.com/gpu.shared else."""
    if resource not in names.NVIDIA_GPUS:
        return
    uses = [use for offer in free.values() for use in offer.values() if use.resource in names.NVIDIA_GPUS]
    best = max((use for use in uses if use.resource != resource), key=lambda use: use.free, default=None)
    if best is not None and best.free >= amount:
        yield Way("ask", node=best.node, units=best.free, resource=best.resource)


def _by_memory(cluster: Snapshot, checks: SchedulerChecks, pod: pod_details.Pod, asks: Asks) -> Iterator[Way]:
    """The node with the most free memory on one GPU, if it shares its GPUs by memory and may be used."""
    sharing = [
        (state.room.rising[-1], state.name)
        for state in cluster.ledger.nodes()
        if state.room is not None and state.room.rising and state.room.facts.blocked is None
    ]
    for free, name in sorted(sharing, key=lambda pair: (-pair[0], pair[1])):
        if free and not _others(checks.all_on(name, pod), asks):
            yield Way("ask", node=name, units=free, resource=names.GPU_MEM)
            return
