"""The events people read under `kubectl describe pod`."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpushare.core.explain import event_texts
from gpushare.core.explain.report import KeptView
from gpushare.core.facts.model import Pin, PodFacts
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.placement import cost, gpu_choice
from gpushare.core.steps import finish
from tests.core import strategies
from tests.support import builders
from tests.support.builders import asks, bound, container, facts, node_state, pod

NODE = facts(16276, 40536, name="gpu-c")


@pytest.mark.parametrize(
    ("gpus", "short", "waited", "said"),
    [([1], 464, 725.0, "Waiting for 12 minutes: gpu-c GPU 1 is kept for it: 464 MiB must still come free there."),
     ([1], 0, 30.0, "Waiting for 30 seconds: gpu-c GPU 1 is kept for it: all it asks is free there."),
     ([0, 2], 9, 120.0, ("Waiting for 2 minutes: gpu-c GPU 0 and GPU 2 "
      "are kept for it: 9 MiB must still come free on them.")),
     ([0, 1, 2, 5], 9, 120.0, ("Waiting for 2 minutes: gpu-c GPUs 0, 1, 2 and 5 "
      "are kept for it: 9 MiB must still come free on them.")),
     (list(range(8)), 9, 120.0, ("Waiting for 2 minutes: 8 GPUs of gpu-c "
      "are kept for it: 9 MiB must still come free on them.")),
     ],
)  # fmt: skip
def test_a_pod_whose_turn_has_come_reads_where_and_what_is_missing(
    gpus: list[int], short: int, waited: float, said: str
) -> None:
    assert event_texts.turn(KeptView("gpu-c", gpus, short, "MiB"), waited) == said


def test_one_container_on_one_gpu() -> None:
    said = event_texts.assigned(NODE, asks(containers=[container("main", 7000)]), ((1,),), [16276, 536])
    assert said == "gpu-c GPU 1: 7000 MiB for main; 536 of 40536 MiB left."


def test_two_containers_on_two_gpus() -> None:
    request = asks(containers=[container("main", 14000), container("helper", 12000)])
    said = event_texts.assigned(NODE, request, ((0,), (1,)), [0, 0])
    assert said == "gpu-c: GPU 0 14000 MiB for main, GPU 1 12000 MiB for helper."


def test_one_container_over_two_gpus() -> None:
    said = event_texts.assigned(NODE, asks(containers=[container("main", 40000)], split=2), ((0, 1),), [0, 0])
    assert said == "gpu-c: GPU 0 and GPU 1, 20000 MiB each for main."


def test_one_container_over_more_gpus() -> None:
    node = facts(*[16276] * 8, name="gpu-c")
    request = asks(containers=[container("main", 80000)], split=8)
    said = event_texts.assigned(node, request, (tuple(range(8)),), [0] * 8)
    assert said == "gpu-c: GPUs 0, 1, 2, 3, 4, 5, 6 and 7, 10000 MiB each for main."


def test_a_whole_gpu() -> None:
    said = event_texts.assigned(NODE, asks(containers=[container("main", whole=1)]), ((0,),), [0, 0])
    assert said == "gpu-c GPU 0: the whole GPU (16276 MiB) for main."


def test_a_waiting_pod_is_told_the_closest_place_and_where_to_ask() -> None:
    made = builders.ledger(NODE)
    made.observe(bound(pod(16276), NODE, ((0,),)), 0.0)
    made.observe(bound(pod(34000), NODE, ((1,),)), 0.0)
    assert event_texts.warning(made, pod(7000, name="llm")) == (
        "NoGPUFits",
        (
            "No single GPU has 7000 MiB free. Closest: gpu-c GPU 1, 6536 of 40536 MiB free, 464 short. "
            "More: kubectl gpushare why llm -n default"
        ),
    )


def test_a_pod_that_only_an_unhealthy_gpu_keeps_waiting_is_told_which() -> None:
    unhealthy = facts(16276, 40536, name="gpu-c", unhealthy=[1])
    made = builders.ledger(unhealthy, facts(7000, name="closer"))
    made.observe(bound(pod(10000), unhealthy, ((0,),)), 0.0)
    made.observe(bound(pod(100), facts(7000, name="closer"), ((0,),)), 0.0)
    assert event_texts.warning(made, pod(7000, name="llm")) == (
        "NoGPUFits",
        (
            "No healthy GPU has 7000 MiB free. gpu-c GPU 1 has 40536 of 40536 MiB free, but is unhealthy. "
            "More: kubectl gpushare why llm -n default"
        ),
    )


def test_a_pod_that_can_never_fit_is_told_the_largest_gpu() -> None:
    assert event_texts.warning(builders.ledger(NODE), pod(50000)) == (
        "NeverFits",
        (
            "No GPU is as large as 50000 MiB; the largest is 40536 MiB (gpu-c). "
            "Ask less, or several GPUs: annotation aliyun.com/gpu-count."
        ),
    )


def test_a_pod_that_names_a_node_without_gpus_reads_that_name() -> None:
    ledger = builders.ledger(NODE)
    text = "No node that shares a GPU is called gpu-x (annotation nodeName). More: kubectl gpushare why p -n default"
    assert event_texts.warning(ledger, pod(4, only="gpu-x", name="p"), among=()) == ("NoGPUFits", text)
    _, long = event_texts.warning(ledger, pod(4, only="x" * 253, name="p" * 253), among=()) or ("", "")
    assert len(long) <= 200
    elsewhere = event_texts.warning(ledger, pod(4, only="gpu-c", name="p"), among=())
    assert elsewhere is not None
    assert elsewhere[1].startswith(event_texts.NONE_ALLOWED)


def test_an_invalid_request_is_told_what_to_write() -> None:
    assert event_texts.warning(builders.ledger(), pod(containers=[container("main", "4Gi")])) == (
        "InvalidGPURequest",
        'aliyun.com/gpu-mem counts MiB, not bytes: container main asks 4Gi, read as 4294967296 MiB. Write "4096".',
    )


def test_long_names_lose_their_middle() -> None:
    assert event_texts.short_name("team-recommendation-ranking-model-v2-6d9f7-x7k2p") == "team-recommen…-x7k2p"
    assert event_texts.short_name("llm") == "llm"


def test_no_event_is_longer_than_200_characters() -> None:
    many = asks(containers=[container(f"container-{i}" * 4, 10) for i in range(12)])
    assert len(event_texts.assigned(NODE, many, ((0,),) * 12, [0, 0])) == 200


LONG = "n" * 253


@given(st.data(), strategies.POLICIES)
def test_no_event_is_too_long_whatever_is_asked_and_however_things_are_named(data: st.DataObject, policy: str) -> None:
    node = facts(8, 1 << 20, name=LONG)
    asked = PodFacts("u", LONG, LONG, data.draw(strategies.api_requests(pin=Pin.DIRECT)))
    made = builders.ledger(node)
    made.observe(bound(pod(data.draw(st.integers(1, 8))), node, ((0,),)), 0.0)
    said = event_texts.warning(made, asked)
    assert said is None or 0 < len(said[1]) <= 200
    room = node_state(made, LONG).room
    assert room is not None
    request = asks(containers=[container("c" * 63, data.draw(st.integers(1, 1 << 20))), container("d" * 63, 1)])
    places = gpu_choice.plan(request, room, policy)
    if places is not None:
        assert 0 < len(event_texts.assigned(node, request, places, list(room.free))) <= 200
    single = asks(containers=[container("c" * 63, 1 << 20)])
    assert len(event_texts.assigned(node, single, ((1,),), [8, 0])) <= 200


def test_where_a_pod_went_keeps_the_ends_of_a_long_name() -> None:
    node = facts(8, name="gpu-pool-a100-eu-central-1-autoscaled-7f4c9-x7k2p")
    said = event_texts.assigned(node, asks(containers=[container("main", 5)]), ((0,),), [3])
    assert said == "gpu-pool-a100…-x7k2p GPU 0: 5 MiB for main; 3 of 8 MiB left."


CHANGES: dict[str, Callable[[Ledger], None]] = {
    "gone": lambda books: books.remove_node("n"),
    "draining": lambda books: books.set_node(facts(8, 4, state="draining")),
    "smaller": lambda books: books.set_node(facts(2)),
    "healthy": lambda books: books.set_node(facts(8, 4)),
    "unhealthy": lambda books: books.set_node(facts(8, 4, unhealthy=[0, 1])),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("among", [None, ("n",)])
@pytest.mark.parametrize("asked", [9, 6, 4])
@pytest.mark.parametrize("step", [1, 2])
def test_a_node_may_change_while_all_of_them_are_looked_at(
    change: str, among: tuple[str, ...] | None, asked: int, step: int
) -> None:
    books = builders.ledger(facts(8, 4, unhealthy=[0]), facts(2, name="other"))
    steps = event_texts.warning_steps(books, pod(asked), among, cost.CALL_LOOKS)
    for _ in range(step):
        if next(steps, "ended") == "ended":
            return
    CHANGES[change](books)
    said = finish(steps)
    assert said is None or len(said[1]) <= 200
