"""Which pods should leave their GPU, in which order, and only if another place is free for them."""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
import pytest

from gpushare.core.facts import names, objects, request
from gpushare.core.facts.model import NodeFacts, PodFacts, Rules
from gpushare.core.ledger.holding import Kept
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.placement.cost import CALL_LOOKS, UNHURRIED_LOOKS, Budget
from gpushare.core.scheduling import reschedule
from gpushare.core.scheduling.reach import ANYWHERE, Reach
from gpushare.core.scheduling.reschedule import Candidate, Rescheduling, Why
from tests.support.builders import api_pod, bound, facts, ledger, pod

Used = Mapping[str, Mapping[str, Collection[str]]]
NOBODY: Used = {}
LATER = reschedule.BAD_SECONDS


def on(where: NodeFacts, *gpus: int, units: int = 4, owner: str = "rs", **more: Any) -> PodFacts:
    """A bound pod on these GPUs of a node."""
    if len(gpus) > 1:
        more |= {"split": len(gpus)}
    return bound(pod(units, owner=owner, **more), where, (gpus,))


def world(*nodes: NodeFacts, pods: Collection[PodFacts] = ()) -> Ledger:
    made = ledger(*nodes)
    for one in pods:
        made.observe(one, 0.0)
    return made


def due(made: Ledger, over_used: Used = NOBODY, waiting: Rescheduling | None = None) -> list[Candidate]:
    """Those that should go, after the GPUs have been so for long enough."""
    waiting = waiting or Rescheduling()
    assert waiting.candidates(made, lambda node: over_used.get(node, {}), 0.0) == []
    return waiting.candidates(made, lambda node: over_used.get(node, {}), LATER)


def names_of(candidates: list[Candidate]) -> list[str]:
    return [candidate.pod.name for candidate in candidates]


SICK = facts(8, 8, name="a", unhealthy=[0])
WELL = facts(8, 8, name="a")


# Who should go


def test_a_pod_on_an_unhealthy_gpu_should_go() -> None:
    made = world(SICK, pods=[on(SICK, 0, name="sick"), on(SICK, 1, name="well")])
    (one,) = due(made)
    assert (one.pod.name, one.gpu.index, one.why) == ("sick", 0, Why.UNHEALTHY)


def test_a_pod_on_several_gpus_should_go_if_one_of_them_is_bad() -> None:
    assert names_of(due(world(SICK, pods=[on(SICK, 0, 1, name="wide")]))) == ["wide"]


def test_the_neighbours_of_a_pod_that_uses_too_much_should_go_and_that_pod_should_not() -> None:
    greedy, near, far = on(WELL, 0, name="greedy"), on(WELL, 0, name="near"), on(WELL, 1, name="far")
    candidates = due(world(WELL, pods=[greedy, near, far]), {"a": {"GPU-a-0": (greedy.uid,)}})
    assert [(c.pod.name, c.why) for c in candidates] == [("near", Why.OVER_USED)]


def test_two_that_both_use_too_much_stay() -> None:
    both = [on(WELL, 0, name="one"), on(WELL, 0, name="two")]
    assert due(world(WELL, pods=both), {"a": {"GPU-a-0": [one.uid for one in both]}}) == []


@pytest.mark.parametrize(
    "left",
    [
        {"owner": ""},
        {"terminating": True},
        {"phase": "Succeeded"},
        {"priority": 2_000_000_000},
    ],
    ids=str,
)
def test_a_pod_is_left_alone_if_nobody_makes_a_new_one_or_it_ends_or_is_of_the_system(left: dict[str, Any]) -> None:
    assert due(world(SICK, pods=[on(SICK, 0, **left)])) == []


def test_a_static_pod_has_no_controller() -> None:
    static = objects.Metadata(owner_references=[objects.OwnerReference("Node", "n", True)])
    other = objects.Metadata(owner_references=[objects.OwnerReference("Job", "j"), objects.OwnerReference("Pod", "p")])
    assert (static.controller, other.controller, objects.Metadata().controller) == ("", "", "")


def test_a_pod_whose_gpu_is_unknown_is_left_alone() -> None:
    lost = request.facts(api_pod(4, name="lost", on="a", owner="rs", direct=False), None)
    assert due(world(facts(8, name="a", unhealthy=[0], pin="plugin"), pods=[lost])) == []


def test_a_pod_that_is_only_assumed_there_is_left_alone() -> None:
    made = world(WELL)
    made.assume(pod(4, owner="rs"), "a", "binpack", 0.0)
    made.set_node(SICK)
    assert due(made) == []


def test_a_gpu_must_be_bad_for_a_while_without_a_break() -> None:
    made, waiting = world(SICK, pods=[on(SICK, 0)]), Rescheduling()

    def seen(now: float) -> int:
        return len(waiting.candidates(made, lambda node: {}, now))

    assert (seen(0.0), seen(LATER - 1)) == (0, 0)
    made.set_node(WELL)
    assert seen(LATER) == 0
    made.set_node(SICK)
    assert (seen(LATER + 1), seen(2 * LATER), seen(2 * LATER + 1)) == (0, 0, 1)


def test_what_was_not_watched_was_not_bad() -> None:
    made, waiting = world(SICK, pods=[on(SICK, 0)]), Rescheduling()
    waiting.candidates(made, lambda node: {}, 0.0)
    waiting.forget()
    assert waiting.candidates(made, lambda node: {}, LATER) == []


# In which order


def test_unhealthy_comes_before_over_used_then_the_most_important_then_the_longest() -> None:
    other = facts(8, 8, name="b", unhealthy=[0])
    greedy = on(SICK, 1, name="greedy", units=1)
    near = on(SICK, 1, name="near", units=1, priority=100)
    low, high, late = (
        on(SICK, 0, name="low", units=2),
        on(SICK, 0, name="high", units=2, priority=10),
        on(other, 0, name="late", units=2),
    )
    made, waiting = world(SICK, pods=[greedy, near, low, high]), Rescheduling()
    over_used = {"a": {"GPU-a-1": (greedy.uid,)}}
    waiting.candidates(made, lambda node: over_used.get(node, {}), 0.0)
    made.set_node(other)
    made.observe(late, 0.0)
    waiting.candidates(made, lambda node: over_used.get(node, {}), 1.0)
    listed = waiting.candidates(made, lambda node: over_used.get(node, {}), LATER + 1)
    assert names_of(listed) == ["high", "low", "late", "near"]


def test_a_pod_is_named_once_and_for_the_worst_of_its_gpus() -> None:
    wide, greedy = on(SICK, 0, 1, name="wide"), on(SICK, 1, name="greedy", units=1)
    (one,) = due(world(SICK, pods=[wide, greedy]), {"a": {"GPU-a-1": (greedy.uid,)}})
    assert (one.pod.name, one.why) == ("wide", Why.UNHEALTHY)


# How often


def test_there_is_one_eviction_a_minute_and_the_same_pod_waits_for_ten() -> None:
    made, waiting = world(SICK, pods=[on(SICK, 0, name=name) for name in ("first", "second")]), Rescheduling()
    first = due(made, waiting=waiting)[0]
    waiting.evicted(first, "rs", LATER)

    def later(seconds: float) -> list[str]:
        return names_of(waiting.candidates(made, lambda node: {}, LATER + seconds))

    assert (later(59.0), later(60.0), later(599.0)) == ([], ["second"], ["second"])
    assert later(600.0) == ["first", "second"]


def test_a_pod_that_cannot_go_lets_others_go_first_for_a_minute() -> None:
    made, waiting = world(SICK, pods=[on(SICK, 0, name=name) for name in ("first", "second")]), Rescheduling()
    waiting.put_off(due(made, waiting=waiting)[0], LATER)
    assert names_of(waiting.candidates(made, lambda node: {}, LATER)) == ["second"]
    assert len(waiting.candidates(made, lambda node: {}, LATER + 60)) == 2


def test_for_over_use_pods_of_one_controller_leave_a_gpu_once_an_hour() -> None:
    greedy, near = on(WELL, 0, name="greedy"), on(WELL, 0, name="near")
    made, waiting = world(WELL, pods=[greedy, near]), Rescheduling()
    over_used = {"a": {"GPU-a-0": (greedy.uid,)}}
    (one,) = due(made, over_used, waiting)
    waiting.evicted(one, "rs", LATER)
    waiting.candidates(made, lambda node: over_used.get(node, {}), LATER + 3599)
    assert (waiting.may_go(one, "rs"), waiting.may_go(one, "another")) == (False, True)
    waiting.candidates(made, lambda node: over_used.get(node, {}), LATER + 3600)
    assert waiting.may_go(one, "rs")


def test_off_an_unhealthy_gpu_all_pods_of_a_controller_may_go() -> None:
    waiting = Rescheduling()
    (one,) = due(world(SICK, pods=[on(SICK, 0)]), waiting=waiting)
    waiting.evicted(one, "rs", LATER)
    assert waiting.may_go(one, "rs")


# Another place


def place(
    made: Ledger, who: PodFacts, *, over_used: Used = NOBODY, reach: Reach = ANYWHERE, rules: Rules | None = None
) -> str:
    new = msgspec.structs.replace(who, node="", annotations=(), rules=rules)
    return reschedule.elsewhere(
        made, new, who.node, reach, lambda node: over_used.get(node, {}), Budget(UNHURRIED_LOOKS)
    )


def test_another_node_with_room_is_a_place() -> None:
    sick = on(SICK, 0, units=8)
    assert place(world(SICK, facts(8, name="b"), pods=[sick]), sick) == "b"


def test_another_gpu_of_the_same_node_is_a_place() -> None:
    sick = on(SICK, 0, units=8)
    assert place(world(SICK, pods=[sick]), sick) == "a"


def test_what_the_pod_itself_holds_is_free_for_it() -> None:
    wide = on(facts(8, 8, 8, name="a"), 0, 1, units=16, name="wide")
    sick = facts(8, 8, 8, name="a", unhealthy=[0])
    assert place(world(sick, pods=[wide]), wide) == "a"


def test_without_room_elsewhere_it_stays_where_it_is() -> None:
    sick, full = on(SICK, 0, units=4), on(SICK, 1, units=8)
    assert place(world(SICK, facts(3, name="b"), pods=[sick, full]), sick) == ""


def test_a_place_on_a_gpu_that_is_over_used_is_none() -> None:
    greedy, near = on(WELL, 0, name="greedy", units=1), on(WELL, 0, name="near")
    full, other = on(WELL, 1, units=8), facts(8, name="b")
    there = on(other, 0, name="there", units=1)
    over_used = {"a": {"GPU-a-0": (greedy.uid,)}}
    made = world(WELL, other, pods=[greedy, near, full, there])
    assert place(made, near, over_used=over_used) == "b"
    assert place(made, near, over_used=over_used | {"b": {"GPU-b-0": (there.uid,)}}) == ""


def test_nodes_that_it_may_not_use_are_no_place() -> None:
    sick, full = on(SICK, 0), on(SICK, 1, units=8)
    made = world(SICK, facts(8, name="b"), facts(8, name="c"), pods=[sick, full])
    reach = Reach(lambda pod: {"a", "c"}, lambda pod, node: node != "b")
    assert place(made, sick, reach=reach) == "c"
    assert place(made, sick, reach=Reach(lambda pod: set(), lambda pod, node: False)) == ""
    assert place(made, sick, rules=Rules(node="b")) == "b"


def test_a_cordoned_node_does_not_take_its_own_pod_back() -> None:
    sick = on(SICK, 0)
    assert place(world(SICK, pods=[sick]), sick, reach=Reach(lambda pod: {"b"}, lambda pod, node: node == "b")) == ""


def test_what_is_kept_for_another_pod_is_no_place() -> None:
    sick, full = on(SICK, 0), on(SICK, 1, units=8)
    made = world(SICK, facts(8, name="b"), pods=[sick, full])
    made.keep(Kept(pod(8, name="large"), "b", (("GPU-b-0",),), 0.0))
    assert place(made, sick) == ""


def test_a_reserved_node_is_no_place() -> None:
    sick, full = on(SICK, 0), on(SICK, 1, units=8)
    made = world(SICK, facts(8, name="b", reserved="yes"), pods=[sick, full])
    made.respect_reservations(True)
    assert place(made, sick) == ""


def test_a_place_that_takes_too_long_to_find_is_none() -> None:
    many = pod(*[3] * 40, owner="rs")
    made = world(SICK, *[facts(*[8] * 8, name=f"b{i}") for i in range(50)], pods=[])
    new = msgspec.structs.replace(many, node="")
    assert reschedule.elsewhere(made, new, "a", ANYWHERE, lambda node: {}, Budget(0)) == ""


def test_a_cluster_of_over_used_gpus_is_not_looked_through_in_one_go() -> None:
    made, looked = world(SICK, *[facts(8, name=f"b{i}") for i in range(1000)], pods=[]), list[str]()

    def over_users(node: str) -> dict[str, tuple[str, ...]]:
        looked.append(node)
        return {f"GPU-{node}-0": ("greedy",)}

    new = pod(2, owner="rs")
    assert reschedule.elsewhere(made, new, "a", ANYWHERE, over_users, Budget(CALL_LOOKS)) == ""
    assert len(looked) < 500


# The pod that would be made instead


def test_the_new_pod_asks_what_the_old_one_asked_before_it_was_bound() -> None:
    notes = {names.ALLOCATION: '{"0":{"0":2}}', "GPUrequest": "2Mi"}
    bound_pod = api_pod(mps=1, notes=notes, on="a", owner="rs", terminating=True, phase="Running", unit="MiB")
    bound_pod.spec.node_selector = {"disk": "ssd"}
    new = reschedule.as_new(bound_pod, None)
    assert new.request == pod(mps=1, slot_memory="2Mi", unit="MiB").request
    assert (new.node, new.terminating, new.phase, new.controlled) == ("", False, "Pending", True)
    assert new.rules == Rules(selector=(("disk", "ssd"),))
    assert bound_pod.spec.node_name == "a"
