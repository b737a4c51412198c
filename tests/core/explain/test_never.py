"""What no node could ever hold can never run, and is not said to wait. What may fit one day always waits."""

import random
from typing import Any

import pytest
from hypothesis import given, settings

from gpushare.core.explain import event_texts, verdict
from gpushare.core.facts.model import NodeFacts, PodFacts, Request
from gpushare.core.placement import cost
from gpushare.core.placement.fit import Question
from gpushare.core.placement.room import Room
from tests.core import oracle, strategies
from tests.support import builders
from tests.support.builders import bound, container, facts, pod

IMPOSSIBLE: dict[str, tuple[NodeFacts, PodFacts]] = {
    "two containers that need a GPU each": (facts(16), pod(14, 14)),
    "three containers on two GPUs": (facts(16, 16), pod(9, 9, 9)),
    "an unhealthy GPU that is too small as well": (facts(16, 4, unhealthy=[1]), pod(14, 14)),
    "a split of which one GPU is too small": (facts(16, 4), pod(12, split=2)),
    "a whole GPU and a container that needs the same one": (facts(16), pod(4, whole=1)),
    "two whole GPUs in two containers": (
        facts(16), pod(containers=[container("a", whole=1), container("b", whole=1)])
    ),
    "a sidecar beside the container": (facts(16), pod(9, sidecars=[9])),
    "an init container beside a sidecar": (
        facts(16), pod(2, inits=[container("s", 9, sidecar=True), container("i", 9)])
    ),
    "kubelet's pool of init containers": (facts(16, pin="plugin"), pod(8, 9, init=[8], direct=False)),
}  # fmt: skip
POSSIBLE: dict[str, tuple[NodeFacts, PodFacts]] = {
    "two GPUs, one of them in use": (facts(16, 16), pod(14, 14)),
    "two GPUs, both unhealthy": (facts(16, 16, unhealthy=[0, 1]), pod(14, 14)),
    "an init container before the others": (facts(16), pod(9, init=[16])),
    "a whole GPU for an init container": (facts(16), pod(9, inits=[container("i", whole=1)])),
    "a split over GPUs of two sizes": (facts(16, 9), pod(18, split=2)),
}


def _world(node: NodeFacts, *, full: bool = False) -> Any:
    made = builders.ledger(node)
    if full:
        for i, gpu in enumerate(node.gpus):
            taken = pod(gpu.total, name=f"full-{i}", direct=node.pin.value == "direct")
            made.observe(bound(taken, node, ((i,),)), 0.0)
    return made


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_what_no_node_could_ever_hold_can_never_run(case: str, full: bool) -> None:
    node, asked = IMPOSSIBLE[case]
    made = _world(node, full=full)
    answer = verdict.explain(made, asked)
    assert (answer.verdict, answer.ways) == ("never", [])
    warning = event_texts.warning(made, asked)
    assert warning is not None
    assert warning[0] == event_texts.NEVER_FITS
    assert warning[1] == f"{event_texts.capital(answer.message)}. {event_texts.EVEN_EMPTY}"


@pytest.mark.parametrize("case", POSSIBLE)
def test_what_fits_an_empty_node_waits(case: str) -> None:
    node, asked = POSSIBLE[case]
    made = _world(node, full=True)
    assert verdict.explain(made, asked).verdict == "refused"
    warning = event_texts.warning(made, asked)
    assert warning is not None
    assert warning[0] == event_texts.NO_GPU_FITS


def test_one_node_that_could_hold_it_is_enough_to_wait() -> None:
    small, large = facts(16, name="small"), facts(16, 16, name="large")
    made = builders.ledger(small, large)
    made.observe(bound(pod(16, name="a"), large, ((0,),)), 0.0)
    answer = verdict.explain(made, pod(14, 14))
    assert (answer.verdict, answer.nodes[0].name) == ("refused", "large")


def test_the_node_that_is_too_small_for_all_of_it_together_speaks_before_one_too_small_for_a_part() -> None:
    made = builders.ledger(facts(8, 8, name="small"), facts(16, name="large"))
    made.observe(bound(pod(12, name="a"), facts(16, name="large"), ((0,),)), 0.0)
    assert verdict.explain(made, pod(9, 9)).message == "no GPUs for containers of 9 + 9 MiB"


def test_a_node_whose_plugin_is_down_may_be_enough_one_day() -> None:
    assert verdict.explain(_world(facts(16, state="draining")), pod(14, 14)).verdict == "refused"


def test_what_takes_too_long_to_work_out_waits() -> None:
    """Containers of about a third of a GPU: by their sum they fit, but no search of ours ends."""
    dice, node = random.Random(1), facts(*[15_900] * 8)
    amounts = [5_300 + dice.randint(-300, 300) for _ in range(24)]
    nearly_full = Room.of(node, [gpu.total - 1 for gpu in node.gpus])
    refusal = Question(builders.asks(*amounts)).refusal(nearly_full)
    assert refusal is not None
    assert (refusal.code, refusal.forever) == ("NoGpusFor", False)


def test_it_is_worked_out_once_for_nodes_with_equal_gpus() -> None:
    question = Question(builders.asks(9, 9, 9))
    rooms = Room.of(facts(16, 15), [1, 0]), Room.of(facts(15, 16), [0, 2])
    first, second = cost.Budget(1_000), cost.Budget(1_000)
    assert question.refusal(rooms[0], first) is question.refusal(rooms[1], second)
    assert second.left > first.left


@settings(max_examples=400)
@given(strategies.api_requests(), strategies.rooms())
def test_never_is_exact(request: Request, room: Room) -> None:
    refusal = Question(request).refusal(room)
    if refusal is None or Question(request).off_limits(room.facts) is not None:
        return
    assert refusal.forever is not oracle.fits(request, room.facts.pin, oracle.spots(room.emptied()))
