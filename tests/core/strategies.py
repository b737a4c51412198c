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
    kinds = draw(st.lists(st.sampled_from(list(Role)), min_size=1, max_size=most))
    apps: list[objects.Container] = []
    inits: list[objects.Container] = []
    for i, role in enumerate(kinds):
        whole = draw(st.sampled_from([0, 0, 0, 1, 2]))
        memory = None if whole else draw(AMOUNTS) * split
        made = builders.container(f"c{i}", memory, whole=whole or None, sidecar=role is Role.SIDECAR)
        (apps if role is Role.APP else inits).append(made)
    return builders.asks(containers=apps, inits=inits, direct=direct, split=None if split == 1 else split)


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
    return NodeFacts("n", "MiB", pin, gpus)


@st.composite
def rooms(draw: st.DrawFn, *, pins: tuple[Pin, ...] = tuple(Pin), most: int = 3) -> Room:
    """A node in use; on some GPUs more is taken than they have."""
    facts = draw(node_facts(pins=pins, most=most))
    used = [draw(st.one_of(st.just(0), st.integers(0, gpu.total + 2))) for gpu in facts.gpus]
    return Room.of(facts, used)


def shares_in_order(roles: st.SearchStrategy[Role]) -> st.SearchStrategy[list[Share]]:
    """Shares of memory on one GPU each, in the order in which kubelet starts them."""

    def ordered(kinds: list[tuple[Role, int]]) -> list[Share]:
        first = [kind for kind in kinds if kind[0] is not Role.APP]
        last = [kind for kind in kinds if kind[0] is Role.APP]
        return [builders.share(n, role=role, position=i) for i, (role, n) in enumerate(first + last)]

    return st.lists(st.tuples(roles, AMOUNTS), min_size=1, max_size=6).map(ordered)
