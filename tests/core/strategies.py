"""Random requests, nodes and states of nodes: small numbers, so that everything meets everything."""

from hypothesis import strategies as st

from gpushare.core.facts import objects
from gpushare.core.facts.model import Gpu, NodeFacts, Pin, Request, Role, Share
from gpushare.core.placement.room import Room
from tests.support import builders

POLICIES = st.sampled_from(["binpack", "spread"])
AMOUNTS = st.integers(1, 8)


@st.composite
def api_requests(draw: st.DrawFn, *, pin: Pin | None = None, most: int = 3) -> Request:
    """What a pod of up to `most` GPU containers asks, through the front door."""
    direct = draw(st.booleans()) if pin is None else pin is Pin.DIRECT
    split = draw(st.sampled_from([1, 1, 1, 2, 3]))
    slot_memory = draw(st.sampled_from([None, None, "1Mi", "2500Ki", "5Mi"]))
    kinds = draw(st.lists(st.sampled_from(list(Role)), min_size=1, max_size=most))
    apps: list[objects.Container] = []
    inits: list[objects.Container] = []
    for i, role in enumerate(kinds):
        kind = draw(st.sampled_from(["memory", "memory", "memory", "whole", *(["nvidia", "mps", "mps"] * direct)]))
        amount = draw(AMOUNTS) * split if kind == "memory" else draw(st.integers(1, 2))
        made = builders.asking(f"c{i}", kind, amount, sidecar=role is Role.SIDECAR)
        (apps if role is Role.APP else inits).append(made)
    more = {"split": None if split == 1 else split, "slot_memory": slot_memory}
    return builders.asks(containers=apps, inits=inits, direct=direct, **more)


@st.composite
def node_facts(
    draw: st.DrawFn, *, pins: tuple[Pin, ...] = tuple(Pin), most: int = 3, healthy: bool = False
) -> NodeFacts:
    pin = draw(st.sampled_from(pins))
    totals = draw(st.lists(st.integers(1, 10), min_size=1, max_size=most))
    if pin is Pin.ALIYUN:
        totals = [totals[0]] * len(totals)
    unhealthy = set() if healthy else draw(st.sets(st.integers(0, most - 1), max_size=1))
    gpus = tuple(
        Gpu(i, "" if pin is Pin.ALIYUN else f"GPU-{i}", total, i not in unhealthy) for i, total in enumerate(totals)
    )
    if pin is not Pin.DIRECT:
        return NodeFacts("n", "MiB", pin, gpus)
    return NodeFacts("n", "MiB", pin, gpus, slots=draw(st.integers(0, 4)), nvidia_whole=draw(st.booleans()))


@st.composite
def rooms(draw: st.DrawFn, *, pins: tuple[Pin, ...] = tuple(Pin), most: int = 3) -> Room:
    """A node in use; on some GPUs more is taken than they have."""
    facts = draw(node_facts(pins=pins, most=most))
    used = [draw(st.one_of(st.just(0), st.integers(0, gpu.total + 2))) for gpu in facts.gpus]
    slots = [draw(st.integers(0, facts.slots + 1)) if taken else 0 for taken in used]
    return Room.of(facts, used, slots)


def shares_in_order(roles: st.SearchStrategy[Role]) -> st.SearchStrategy[list[Share]]:
    """Shares of memory on one GPU each, in the order in which kubelet starts them."""

    def ordered(kinds: list[tuple[Role, int]]) -> list[Share]:
        first = [kind for kind in kinds if kind[0] is not Role.APP]
        last = [kind for kind in kinds if kind[0] is Role.APP]
        return [builders.share(n, role=role, position=i) for i, (role, n) in enumerate(first + last)]

    return st.lists(st.tuples(roles, AMOUNTS), min_size=1, max_size=6).map(ordered)
