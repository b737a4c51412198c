"""A pod may be made hard to place, or be so by chance. It must not cost the others their scheduler.

Cost is counted in function calls, which no machine is too busy for. What it comes to in milliseconds: `make bench`.
"""

import random
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import msgspec
import pytest

from gpushare.core.explain import verdict
from gpushare.core.facts import policies
from gpushare.core.facts.kinds import MEMORY, MPS
from gpushare.core.facts.model import Gpu, NodeFacts, Pin, PodFacts, Refusal, Request, Role, Share
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.placement import gpu_choice
from gpushare.core.placement.cost import CALL_LOOKS, Budget
from gpushare.core.scheduling.life import Life
from gpushare.core.scheduling.wakeups import WakeUps
from gpushare.extender.metrics import Metrics
from gpushare.extender.verbs import Verbs
from tests.support.builders import node_state

MOST_CALLS = 64_000  # about 20 ms
NODES = 200


def nodes(pin: Pin, count: int = NODES) -> Ledger:
    """No two alike, so that no answer serves two of them."""
    dice, ledger = random.Random(1), Ledger()
    for number in range(count):
        gpus = tuple(Gpu(i, f"G{number}-{i}", 15_900 + dice.randint(0, 99)) for i in range(8))
        ledger.set_node(NodeFacts(f"n{number}", "MiB", pin, gpus, slots=24 if pin is Pin.DIRECT else 0))
    ledger.take_grown()
    return ledger


def asks(pin: Pin, apps: list[int], inits: tuple[int, ...] = ()) -> PodFacts:
    shares = [
        Share(f"i{i}", len(apps) + i, Role.INIT, MEMORY, units, visible=f"init-{i}") for i, units in enumerate(inits)
    ]
    shares += [Share(f"c{i}", i, Role.APP, MEMORY, units, visible=f"app-{i}") for i, units in enumerate(apps)]
    return PodFacts("hard", "tenant", "hard", Request(tuple(shares), pin), unschedulable="x", spec_units=sum(apps))


def asks_mps(apps: int, gpus: int = 1, early: tuple[Role, ...] = ()) -> PodFacts:
    """`early`: whether a container before the others ends or stays."""
    roles = (*early, *[Role.APP] * apps)
    shares = [Share(f"c{i}", i, role, MPS, 0, gpus, f"mps-{i}") for i, role in enumerate(roles)]
    return PodFacts("hard", "tenant", "hard", Request(tuple(shares), Pin.DIRECT), unschedulable="x", spec_unknown=True)


def nearly_packs() -> list[int]:
    """Thirty-three containers of about 3,600 MiB: four to a GPU, and one is left over."""
    dice = random.Random(7)
    return [3_850 + dice.randint(-250, 250) for _ in range(33)]


HARD = {
    "an init container that fits no GPU": (Pin.DIRECT, asks(Pin.DIRECT, [900, 901, 902, 903], (16_500,))),
    "many init containers": (Pin.DIRECT, asks(Pin.DIRECT, [100 + i for i in range(5)], (16_500, *[1] * 190))),
    "containers that just do not pack": (Pin.PLUGIN, asks(Pin.PLUGIN, nearly_packs())),
    "two hundred containers": (Pin.PLUGIN, asks(Pin.PLUGIN, [620 + i % 60 for i in range(200)])),
    "two hundred MPS shares": (Pin.DIRECT, asks_mps(200)),
    "MPS shares on most GPUs": (Pin.DIRECT, asks_mps(20, gpus=7)),
    "MPS shares of sidecars and init containers": (Pin.DIRECT, asks_mps(1, early=(Role.SIDECAR, Role.INIT) * 95)),
}


def calls(work: Callable[[], object]) -> int:
    count = 0

    def counts(_frame: FrameType, event: str, _arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counts)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("verb", ["filter", "choose", "prioritize"])
def test_one_call_costs_little_whatever_the_pod(name: str, verb: str) -> None:
    pin, pod = HARD[name]
    ledger = nodes(pin)
    life = Life(ledger, policy="binpack")
    verbs = Verbs(life, unit=None, clock=lambda: 0.0, cannot_answer=lambda _: "", count_refusal=Metrics(ledger).refused)
    body = msgspec.json.encode({"Pod": wire(pod), "NodeNames": list(ledger.node_names())})
    assert calls(lambda: getattr(verbs, verb)(body)) < MOST_CALLS


def wire(pod: PodFacts) -> dict[str, Any]:
    assert isinstance(pod.request, Request)
    apps: list[dict[str, Any]] = []
    inits: list[dict[str, Any]] = []
    for share in pod.request.shares:
        path = f"metadata.annotations['gpushare.io/visible-{share.visible}']"
        env = {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {"fieldPath": path}}}
        limits = {"keti.com/mpsgpu": str(share.gpus)} if share.kind is MPS else {"aliyun.com/gpu-mem": str(share.units)}
        made: dict[str, Any] = {"name": share.container, "resources": {"limits": limits}}
        made |= {"restartPolicy": "Always"} if share.role is Role.SIDECAR else {}
        made |= {"env": [env]} if pod.request.pin is Pin.DIRECT else {}
        (apps if share.role is Role.APP else inits).append(made)
    meta = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
    return {"metadata": meta, "spec": {"containers": apps, "initContainers": inits}}


@pytest.mark.parametrize("name", HARD)
def test_neither_its_reasons_nor_its_explanation_cost_more(name: str) -> None:
    pin, pod = HARD[name]
    ledger = nodes(pin)
    request = pod.request
    assert isinstance(request, Request)
    assert calls(lambda: ledger.refusals(request, pod, list(ledger.node_names()), Budget(CALL_LOOKS))) < MOST_CALLS
    for step in steps_of(verdict.explaining(ledger, pod, looks=CALL_LOOKS)):
        assert step < MOST_CALLS


def steps_of(steps: Any) -> list[int]:
    costs, end = [], object()
    going = True

    def step() -> None:
        nonlocal going
        going = next(steps, end) is not end

    while going:
        costs.append(calls(step))
    return costs


@pytest.mark.parametrize("name", HARD)
def test_waking_it_costs_no_more_in_one_turn(name: str) -> None:
    pin, pod = HARD[name]
    ledger, waiting = nodes(pin), WakeUps()
    waiting.refuse(pod)
    ledger._grown.update(ledger.node_names())
    for _ in range(20):
        assert calls(lambda: waiting.due(ledger, 1.0)) < MOST_CALLS


def test_what_the_call_has_no_time_for_is_found_out_beside_it() -> None:
    """Some nodes of many fit. The call may not get as far; then the pod is told so, and is woken when it is known."""
    ledger = nodes(Pin.PLUGIN, 60)
    dice = random.Random(3)
    pod = asks(Pin.PLUGIN, [5_256 + dice.randint(0, 110) for _ in range(24)])
    assert isinstance(pod.request, Request)
    everywhere = list(ledger.node_names())
    reasons = ledger.refusals(pod.request, pod, everywhere, Budget(40))
    assert {refused.code for refused in reasons.values()} == {"TooHard"}
    for _ in range(60):
        ledger.study(Budget(CALL_LOOKS))
    fits = [node for node in everywhere if _fits(ledger, node, pod.request)]
    assert 0 < len(fits) < 60
    assert ledger.take_grown() == set(fits)
    assert not ledger.study(Budget(CALL_LOOKS))


def test_many_hard_pods_are_all_found_out_beside_the_calls() -> None:
    ledger, everywhere = nodes(Pin.PLUGIN, 3), ["n0", "n1", "n2"]
    for seed in range(12):
        dice = random.Random(seed)
        pod = asks(Pin.PLUGIN, [5_256 + dice.randint(0, 110) for _ in range(24)])
        assert isinstance(pod.request, Request)
        ledger.refusals(pod.request, pod, everywhere, Budget(40))
    assert len(ledger._shapes.wanted()) == 12
    for _ in range(40):
        ledger.study(Budget(CALL_LOOKS))
    assert not ledger._shapes.wanted()


def _fits(ledger: Ledger, node: str, request: Request) -> bool:
    room = node_state(ledger, node).room
    assert room is not None
    return gpu_choice.plan(request, room, policies.BINPACK.name) is not None


def test_a_pod_that_is_too_hard_is_told_so() -> None:
    dice = random.Random(3)
    pod = asks(Pin.PLUGIN, [5_256 + dice.randint(0, 110) for _ in range(24)])  # three to a GPU, with next to no slack
    ledger = nodes(Pin.PLUGIN, 1)
    assert isinstance(pod.request, Request)
    refused = ledger.refusals(pod.request, pod, ["n0"])["n0"]
    assert refused == Refusal("TooHard", "placing 24 containers takes too long to work out")


def test_nodes_that_look_the_same_are_looked_at_once() -> None:
    ledger = Ledger()
    for number in range(500):
        gpus = tuple(Gpu(i, f"G{number}-{i}", 16_000) for i in range(8))
        ledger.set_node(NodeFacts(f"n{number}", "MiB", Pin.PLUGIN, gpus))
    pod = asks(Pin.PLUGIN, [3_300] * 31)
    assert isinstance(pod.request, Request)
    budget = Budget(CALL_LOOKS)
    assert len(ledger.fitting(pod.request, pod, list(ledger.node_names()), budget)) == 500
    assert CALL_LOOKS - budget.left < 3_000
