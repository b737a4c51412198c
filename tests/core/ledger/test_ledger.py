"""What the ledger promises, one sentence at a time. `test_ledger_machine` tries all of it together."""

from typing import Any

import pytest

from gpushare.core.facts import names
from gpushare.core.facts.model import NodeFacts, Places, PodFacts, Refusal, Request
from gpushare.core.ledger import cool_down
from gpushare.core.ledger.cool_down import RECALL_SECONDS
from gpushare.core.ledger.holding import Holding, State
from gpushare.core.ledger.ledger import DECIDED, Ledger
from gpushare.core.placement.cost import Budget
from gpushare.core.placement.fit import JUST_REFUSED, STILL_STARTING, Question
from tests.support.builders import asks, bound, facts, free, ledger, node_state, pod

PACK = "binpack"


def holding(of: Ledger, who: PodFacts) -> Holding:
    found = of.holding(who.uid)
    assert found is not None
    return found


def assume(of: Ledger, who: PodFacts, node: str = "n", now: float = 0.0) -> Places:
    places = of.assume(who, node, PACK, now)
    assert not isinstance(places, Refusal), places
    return places


def bind(of: Ledger, who: PodFacts, node: NodeFacts) -> PodFacts:
    """Reserve, write, confirm."""
    places = of.reserve(who, node.name, PACK)
    assert not isinstance(places, Refusal), places
    there = bound(who, node, places)
    of.confirm(there)
    return there


def fits(of: Ledger, who: PodFacts, *nodes: str) -> list[str]:
    assert isinstance(who.request, Request)
    return of.fitting(who.request, who, nodes or ("n",))


def refusal(of: Ledger, who: PodFacts, node: str = "n") -> Refusal | None:
    assert isinstance(who.request, Request)
    return of.refusal(Question(who.request), node, who)


# A decision counts from the moment it is made


def test_the_next_pod_sees_what_is_assumed_for_the_last() -> None:
    books = ledger(facts(8))
    assume(books, pod(5))
    assert fits(books, pod(4)) == []
    assert fits(books, pod(3)) == ["n"]


def test_an_assumption_ends_after_half_a_minute() -> None:
    books = ledger(facts(8))
    assume(books, pod(5), now=100.0)
    books.expire(129.9)
    assert free(books) == [3]
    books.expire(130.0)
    assert free(books) == [8]


@pytest.mark.parametrize("slow", [{"claim_volume": True}, {"nominated": "n"}])
def test_an_assumption_lasts_while_volumes_are_bound(slow: dict[str, Any]) -> None:
    books = ledger(facts(8))
    assume(books, pod(5, **slow))
    books.expire(899.9)
    assert free(books) == [3]
    books.expire(900.0)
    assert free(books) == [8]


def test_an_assumption_is_short_again_once_the_pod_is_nominated_no_longer() -> None:
    books = ledger(facts(8))
    assume(books, pod(5, name="p", nominated="n"))
    books.observe(pod(5, name="p"), 20.0)
    books.expire(31.0)
    assert free(books) == [8]


def test_an_assumption_ends_when_the_pod_is_to_be_deleted() -> None:
    books = ledger(facts(8))
    assume(books, pod(5, name="p"))
    books.observe(pod(5, name="p", terminating=True), 1.0)
    assert free(books) == [8]


def test_an_assumption_ends_when_the_pod_asks_something_else() -> None:
    books = ledger(facts(8, 8))
    assume(books, pod(8, name="p"))
    books.observe(pod(8, name="p", split=2), 1.0)
    assert free(books) == [8, 8]


def test_a_binding_takes_what_is_assumed_and_only_that() -> None:
    books, node = ledger(facts(8, 8)), facts(8, 8)
    who = pod(5)
    assert assume(books, who) == books.reserve(who, "n", "spread")
    assert sorted(free(books)) == [3, 8]
    books.undo(who.uid)
    assert free(books) == [8, 8]
    bind(books, who, node)
    assert sorted(free(books)) == [3, 8]


def test_a_binding_elsewhere_gives_back_what_was_held() -> None:
    books = ledger(facts(8), facts(8, name="other"))
    who = pod(5)
    assume(books, who)
    books.reserve(who, "other", PACK)
    assert (free(books), free(books, "other")) == ([8], [3])


def test_a_binding_plans_anew_if_the_pod_asks_something_else_by_then() -> None:
    books = ledger(facts(8, 8))
    assume(books, pod(8, name="p"))
    assert books.reserve(pod(8, name="p", split=2), "n", PACK) == ((0, 1),)


@pytest.mark.parametrize("bind_first", [False, True])
def test_a_pod_that_is_bound_or_being_bound_is_not_decided_again(bind_first: bool) -> None:
    """A scheduler whose call timed out asks again about a pod that was bound meanwhile."""
    node = facts(8, 8)
    books, who = ledger(node), pod(5)
    if bind_first:
        bind(books, who, node)
    else:
        books.reserve(who, "n", PACK)
    assert books.assume(who, "n", PACK, 0.0) is DECIDED
    assert books.reserve(who, "n", PACK) is DECIDED
    books.expire(10_000.0)
    assert sorted(free(books)) == [3, 8]
    books.forget(who.uid)
    assert free(books) == [8, 8]


# What is held, once the node has changed


@pytest.mark.parametrize(
    "change",
    [
        {"totals": (4, 8)},
        {"totals": (8, 8), "unhealthy": (0,)},
        {"totals": (8,), "uuids": ("GPU-n-1",)},
    ],
)
def test_an_assumption_on_a_gpu_that_shrank_or_is_unhealthy_or_gone_is_planned_anew(change: dict[str, Any]) -> None:
    books, who = ledger(facts(8, 8)), pod(5)
    assert assume(books, who) == ((0,),)
    totals = change.pop("totals")
    books.set_node(facts(*totals, **change))
    places = books.reserve(who, "n", PACK)
    assert not isinstance(places, Refusal)
    where = books.facts("n")
    assert where is not None
    assert where.gpus[places[0][0]].key == "GPU-n-1"


@pytest.mark.parametrize("change", [{"pin": "plugin"}, {"state": "draining"}, {"nvidia": 1}])
def test_an_assumption_on_a_node_that_may_not_take_the_pod_any_more_is_refused(change: dict[str, Any]) -> None:
    books, who = ledger(facts(8)), pod(5)
    assume(books, who)
    books.set_node(facts(8, **change))
    assert isinstance(books.reserve(who, "n", PACK), Refusal)
    books.set_node(facts(8))
    assert free(books) == [8]


def test_an_assumption_gives_way_to_a_stranger_on_its_gpu() -> None:
    books, who = ledger(facts(8)), pod(5)
    assume(books, who)
    books.observe(pod(4, on="n", direct=False), 0.0)  # bound by hand, and nobody says to which GPU
    assert isinstance(books.reserve(who, "n", PACK), Refusal)


def test_assumptions_and_bindings_follow_their_gpu_when_indices_shift() -> None:
    node = facts(8, 10)
    books, held = ledger(node), pod(5)
    bind(books, pod(7), node)  # on the smaller
    assume(books, held)  # on the larger
    turned = facts(10, 8, uuids=("GPU-n-1", "GPU-n-0"))
    books.set_node(turned)
    assert free(books) == [5, 1]
    assert books.reserve(held, "n", PACK) == ((0,),)


def test_a_reservation_whose_gpu_is_gone_counts_everywhere_until_its_outcome() -> None:
    books, who = ledger(facts(8, 8)), pod(5)
    books.reserve(who, "n", PACK)
    books.set_node(facts(8, uuids=("GPU-n-1",)))
    assert free(books) == [3]
    books.undo(who.uid)
    assert free(books) == [8]


def test_a_node_that_comes_back_has_its_pods() -> None:
    node = facts(8)
    books = ledger(node)
    bind(books, pod(5), node)
    books.remove_node("n")
    assert fits(books, pod(1)) == []
    books.set_node(node)
    assert free(books) == [3]


def test_a_node_is_forgotten_with_its_last_pod() -> None:
    node = facts(8)
    books = ledger(node)
    there = bind(books, pod(5), node)
    books.remove_node("n")
    books.forget(there.uid)
    assert not books.nodes()


# What the API server shows


def test_a_pod_seen_unbound_after_it_was_bound_is_an_old_sight_of_it() -> None:
    node, who = facts(8), pod(5)
    books = ledger(node)
    bind(books, who, node)
    books.observe(who, 0.0)
    books.expire(1000.0)
    assert free(books) == [3]


def test_an_old_sight_of_a_bound_pod_nominates_it_nowhere() -> None:
    node, who = facts(8), pod(5, nominated="n")
    books = ledger(node)
    bind(books, who, node)
    books.observe(who, 0.0)
    assert not books.has_promises()


def test_once_confirmed_what_was_written_counts() -> None:
    """As it would for an extender that starts now: the node numbered its GPUs anew while the binding was under way."""
    node, who = facts(8, 8, pin="plugin"), pod(5, direct=False)
    books = ledger(node)
    places = books.reserve(who, "n", PACK)
    assert places == ((0,),)
    turned = facts(8, 8, pin="plugin", uuids=("GPU-n-1", "GPU-n-0"))
    books.set_node(turned)
    assert free(books) == [8, 3]
    there = bound(who, node, ((0,),))
    books.confirm(there)
    assert free(books) == [3, 8]
    anew = ledger(turned)
    anew.observe(there, 0.0)
    assert free(anew) == free(books)


@pytest.mark.parametrize("shown_first", [True, False])
def test_a_binding_that_is_made_as_it_was_reserved_changes_nothing_that_others_see(shown_first: bool) -> None:
    """Else each pod would make all kept orders look at its node once more, for nothing."""
    node, who = facts(8, 8), pod(5)
    books = ledger(node)
    books.reserve(who, "n", PACK)
    there = bound(who, node, ((0,),))
    books.ranked("default", "sort", None).put({"n": 1})
    for confirmed in (False, True) if shown_first else (True, False):
        if confirmed:
            books.confirm(there)
        else:
            books.observe(there, 0.0)
        assert (free(books), books.take_grown() - {"n"}) == ([3, 8], set())
        assert not books.ranked("default", "sort", None).open
    holding = books.bound(who.uid)
    assert holding is not None
    assert holding.seen
    books.forget(who.uid)
    assert free(books) == [8, 8]
    assert list(books.ranked("default", "sort", None).open) == ["n"]


def test_a_terminating_pod_still_holds_its_memory() -> None:
    node = facts(8)
    books = ledger(node)
    bind(books, pod(5, name="p"), node)
    books.observe(bound(pod(5, name="p", terminating=True), node, ((0,),)), 0.0)
    assert free(books) == [3]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_memory_is_free_once_the_containers_have_ended(phase: str) -> None:
    node = facts(8)
    books = ledger(node)
    bind(books, pod(5, name="p"), node)
    books.observe(bound(pod(5, name="p", phase=phase), node, ((0,),)), 0.0)
    assert free(books) == [8]


def test_a_pod_bound_by_hand_counts_on_every_gpu_until_somebody_says_which() -> None:
    node = facts(8, 6, pin="plugin")
    books = ledger(node)
    stranger = pod(5, name="p", on="n", direct=False)
    books.observe(stranger, 0.0)
    assert free(books) == [3, 1]
    books.observe(bound(stranger, node, ((1,),)), 1.0)
    assert free(books) == [8, 1]


def test_a_pod_with_whole_gpus_somewhere_leaves_nothing() -> None:
    books = ledger(facts(8, 6))
    books.observe(pod(whole=1, on="n", direct=False), 0.0)
    assert free(books) == [0, 0]


def test_a_namesake_is_another_pod() -> None:
    node = facts(8)
    books = ledger(node)
    bind(books, pod(3, name="p", uid="old"), node)
    bind(books, pod(3, name="p", uid="new"), node)
    books.forget("old")
    assert free(books) == [5]


def test_what_the_watch_shows_before_the_answer_comes_counts_once() -> None:
    node, who = facts(8), pod(5)
    books = ledger(node)
    places = books.reserve(who, "n", PACK)
    assert not isinstance(places, Refusal)
    books.observe(bound(who, node, places), 0.0)
    books.confirm(bound(who, node, places))
    books.undo(who.uid)
    assert free(books) == [3]


def test_a_pod_that_went_elsewhere_is_charged_there() -> None:
    here, there = facts(8), facts(8, name="other")
    books, who = ledger(here, there), pod(5)
    books.reserve(who, "n", PACK)
    books.observe(bound(who, there, ((0,),)), 0.0)
    books.undo(who.uid)
    assert (free(books), free(books, "other")) == ([8], [3])


def test_a_list_forgets_what_it_does_not_show() -> None:
    node = facts(8)
    books = ledger(node)
    books.observe(bind(books, pod(5), node), 0.0)
    assert books.relisted(set()) == []
    assert free(books) == [8]


def test_what_no_list_has_shown_bound_must_be_asked_for() -> None:
    """It may be newer than the list, or gone before it: only the API server knows."""
    node = facts(8)
    books = ledger(node)
    confirmed, reserved, held = pod(1), pod(1), pod(1)
    bind(books, confirmed, node)
    books.reserve(reserved, "n", PACK)
    assume(books, held)
    assert {who.uid for who in books.relisted(set())} == {confirmed.uid, reserved.uid, held.uid}
    assert free(books) == [5]


def test_what_a_complete_list_shows_unbound_is_not_bound_any_more() -> None:
    node, who = facts(8), pod(5)
    books = ledger(node)
    books.observe(bind(books, who, node), 0.0)
    books.observe(who, 1.0)
    assert free(books) == [3]  # by itself this may be an old sight
    assert books.relisted({who.uid}, {who.uid}) == []
    assert (free(books), books.holding(who.uid) is not None) == ([8], False)


def test_a_binding_of_ours_that_a_list_shows_unbound_must_be_asked_for() -> None:
    """The list may have been read before it was made."""
    node, who, reserved = facts(8), pod(5), pod(1)
    books = ledger(node)
    bind(books, who, node)
    books.reserve(reserved, "n", PACK)
    assert [kept.uid for kept in books.relisted({who.uid, reserved.uid}, {who.uid})] == [who.uid]
    assert free(books) == [2]
    books.unbind(who.uid)
    books.unbind(reserved.uid)  # a binding under way is none yet
    assert free(books) == [7]


def test_a_gpu_is_crowded_when_others_came_unasked() -> None:
    node, who, other = facts(8, 8), pod(5), pod(5)
    books = ledger(node)
    books.reserve(who, "n", PACK)
    assert not books.is_crowded(who.uid)
    books.observe(bound(other, node, ((0,),)), 0.0)
    assert books.is_crowded(who.uid)
    books.forget(other.uid)
    assert not books.is_crowded(who.uid)
    assert not books.is_crowded("nobody")


# A pod that moves


def moved(books: Ledger, who: PodFacts, node: NodeFacts, gpu: int, now: float) -> None:
    books.observe(bound(who, node, ((gpu,),)), now)


def test_a_moved_pod_counts_on_both_gpus_for_ten_seconds() -> None:
    node, who = facts(8, 8), pod(5)
    books = ledger(node)
    moved(books, who, node, 0, 0.0)
    moved(books, who, node, 1, 100.0)
    assert free(books) == [3, 3]
    books.expire(109.9)
    assert free(books) == [3, 3]
    books.expire(110.0)
    assert free(books) == [8, 3]


def test_a_pod_that_moves_back_and_forth_counts_no_more_than_once_on_each() -> None:
    node, who = facts(8, 8), pod(5)
    books = ledger(node)
    for step in range(6):
        moved(books, who, node, step % 2, float(step))
    assert free(books) == [3, 3]
    books.expire(15.0)
    assert free(books) == [8, 3]


def test_other_news_of_a_moved_pod_does_not_make_it_count_longer() -> None:
    node = facts(8, 8)
    books = ledger(node)
    moved(books, pod(5, name="p"), node, 0, 0.0)
    moved(books, pod(5, name="p"), node, 1, 1.0)
    moved(books, pod(5, name="p", phase="Running"), node, 1, 9.0)
    books.expire(11.0)
    assert free(books) == [8, 3]


def test_a_moved_pod_counts_on_both_gpus_even_if_the_node_changes() -> None:
    node, who = facts(8, 8), pod(5)
    books = ledger(node)
    moved(books, who, node, 0, 0.0)
    moved(books, who, node, 1, 1.0)
    books.set_node(facts(8, 8, 8))
    assert free(books) == [3, 3, 8]
    books.remove_node("n")
    books.set_node(node)
    assert free(books) == [3, 3]
    books.expire(11.0)
    assert free(books) == [8, 3]


def test_a_moved_pod_that_is_gone_counts_nowhere() -> None:
    node, who = facts(8, 8), pod(5)
    books = ledger(node)
    moved(books, who, node, 0, 0.0)
    moved(books, who, node, 1, 1.0)
    books.forget(who.uid)
    assert free(books) == [8, 8]


# Nominations


def test_what_a_nominated_pod_waits_for_is_kept_from_its_equals_and_inferiors() -> None:
    node = facts(8)
    books = ledger(node)
    bind(books, pod(5), node)
    books.observe(pod(3, priority=5, nominated="n"), 0.0)
    assert fits(books, pod(3, priority=5)) == []
    assert fits(books, pod(3, priority=0)) == []
    assert fits(books, pod(3, priority=6)) == ["n"]


def test_a_nomination_stands_where_victims_leave_and_nowhere_else() -> None:
    node = facts(8, 8)
    books = ledger(node)
    bind(books, pod(8, name="victim", priority=1), node)
    books.observe(bound(pod(8, name="victim", priority=1, terminating=True), node, ((0,),)), 0.0)
    bind(books, pod(5), node)
    books.observe(pod(8, priority=5, nominated="n"), 0.0)
    assert fits(books, pod(3)) == ["n"]  # on the other GPU
    books.forget("uid-victim")
    assert fits(books, pod(8)) == []
    assert fits(books, pod(3)) == ["n"]


def test_the_nominated_pod_itself_has_what_is_promised_to_it() -> None:
    books = ledger(facts(8))
    books.observe(pod(8, name="p", nominated="n"), 0.0)
    assert fits(books, pod(8, name="p")) == ["n"]


def test_a_nomination_outlives_an_assumption_that_came_to_nothing() -> None:
    books = ledger(facts(8))
    who = pod(8, name="p", nominated="n")
    books.observe(who, 0.0)
    assume(books, who)
    books.expire(1000.0)
    assert fits(books, pod(8)) == []
    books.reserve(who, "n", PACK)
    books.undo(who.uid)
    assert fits(books, pod(8)) == []


def test_an_assumed_pod_does_not_count_twice_for_its_nomination() -> None:
    books = ledger(facts(8))
    who = pod(4, nominated="n")
    books.observe(who, 0.0)
    assume(books, who)
    assert fits(books, pod(4)) == ["n"]


@pytest.mark.parametrize("end", ["bound", "gone", "given up", "terminating", "not listed"])
def test_a_nomination_ends_with_its_reason_and_wakes_others(end: str) -> None:
    node = facts(8)
    books = ledger(node, facts(8, name="other"))
    who = pod(8, name="p", nominated="n")
    books.observe(who, 0.0)
    books.take_grown()
    if end == "bound":
        books.observe(bound(who, facts(8, name="other"), ((0,),)), 1.0)
    elif end == "gone":
        books.forget(who.uid)
    elif end == "given up":
        books.observe(pod(8, name="p"), 1.0)
    elif end == "terminating":
        books.observe(pod(8, name="p", nominated="n", terminating=True), 1.0)
    else:
        books.relisted(set())
    assert fits(books, pod(8)) == ["n"]
    assert "n" in books.take_grown()


def test_a_confirmed_pod_needs_its_nomination_no_longer() -> None:
    node = facts(8, 8)
    books = ledger(node)
    who = pod(8, nominated="n")
    books.observe(who, 0.0)
    bind(books, who, node)
    assert not books.has_promises()
    assert fits(books, pod(8)) == ["n"]


def test_a_nomination_that_shifts_wakes_those_it_makes_room_for() -> None:
    node = facts(8, 6)
    books = ledger(node)
    bind(books, pod(8, name="victim", priority=9), node)
    waits = pod(6, name="waits", priority=5, nominated="n")
    books.observe(waits, 0.0)
    assert fits(books, pod(6)) == []
    books.observe(bound(pod(8, name="victim", priority=9, terminating=True), node, ((0,),)), 1.0)
    books.take_grown()
    books.observe(pod(8, name="waits", priority=5, nominated="n"), 1.0)
    assert fits(books, pod(6)) == ["n"]
    assert "n" in books.take_grown()


def test_news_of_a_victim_may_shift_a_nomination_and_wakes_others() -> None:
    node = facts(8, 8)
    books = ledger(node)
    bind(books, pod(2, name="stays", priority=9), node)
    bind(books, pod(8, name="victim", priority=9), node)
    books.observe(pod(6, name="waits", priority=5, nominated="n"), 0.0)
    assert fits(books, pod(6)) == []
    books.take_grown()
    books.observe(bound(pod(8, name="victim", priority=9, terminating=True), node, ((1,),)), 1.0)
    assert "n" in books.take_grown()


# A node that refused a shape


def refuse(books: Ledger, node: NodeFacts, now: float, *, direct: bool = False) -> None:
    who = bind(books, pod(5, direct=direct), node)
    failed = pod(5, uid=who.uid, direct=direct, on="n", phase="Failed", reason="UnexpectedAdmissionError")
    books.observe(failed, now)


def test_a_node_that_refused_a_shape_cools_down_ten_seconds_for_that_shape_only() -> None:
    node = facts(8, pin="plugin")
    books = ledger(node)
    refuse(books, node, 100.0)
    assert refusal(books, pod(5, direct=False)) is JUST_REFUSED
    assert fits(books, pod(5, direct=False)) == []
    assert fits(books, pod(4, direct=False)) == ["n"]
    books.take_grown()
    books.expire(110.0)
    assert fits(books, pod(5, direct=False)) == ["n"]
    assert "n" in books.take_grown()


def test_cool_downs_double_up_to_five_minutes() -> None:
    node = facts(8, pin="plugin")
    books, now = ledger(node), 0.0
    for length in (10, 20, 40, 80, 160, 300, 300):
        refuse(books, node, now)
        books.expire(now + length - 0.1)
        assert refusal(books, pod(5, direct=False)) is JUST_REFUSED
        books.expire(now + length)
        assert refusal(books, pod(5, direct=False)) is None
        now += length + 1


def test_a_cool_down_that_ended_long_ago_is_forgotten() -> None:
    node = facts(8, pin="plugin")
    books = ledger(node)
    refuse(books, node, 0.0)
    books.expire(10.0)
    books.expire(10.0 + RECALL_SECONDS - 0.1)
    assert len(node_state(books, "n")._cool_downs) == 1
    books.expire(10.0 + RECALL_SECONDS)
    assert (len(node_state(books, "n")._cool_downs), books._timed) == (0, set())
    refuse(books, node, 1000.0)
    books.expire(1010.0)
    assert refusal(books, pod(5, direct=False)) is None  # as if it were the first


def test_refusals_of_ever_new_shapes_are_not_all_remembered() -> None:
    books = ledger(facts(8, pin="plugin"))
    for units in range(1, cool_down.MOST + 100):
        books.observe(pod(units, name="p", direct=False, on="n"), 0.0)
        books.observe(
            pod(units, name="p", direct=False, on="n", phase="Failed", reason="UnexpectedAdmissionError"), 0.0
        )
    assert len(node_state(books, "n")._cool_downs) == cool_down.MOST
    assert refusal(books, pod(1, direct=False)) is None


def test_a_pod_that_names_its_unit_cools_down_with_those_that_do_not() -> None:
    node = facts(8, pin="plugin")
    books = ledger(node)
    refuse(books, node, 0.0)
    assert refusal(books, pod(5, direct=False, unit="MiB")) is JUST_REFUSED


def test_pods_refused_together_are_one_refusal() -> None:
    node = facts(8, 8, 8, pin="plugin")
    books = ledger(node)
    sent = [bind(books, pod(5, direct=False), node) for _ in range(3)]
    for who in sent:
        books.observe(pod(5, uid=who.uid, direct=False, on="n", phase="Failed", reason="UnexpectedAdmissionError"), 0.0)
    books.expire(10.0)
    assert refusal(books, pod(5, direct=False)) is None


@pytest.mark.parametrize("pin", ["plugin", "direct"])
def test_a_cool_down_ends_when_such_a_pod_starts_there_and_wakes_others(pin: str) -> None:
    node, direct = facts(8, 8, pin=pin), pin == "direct"
    books = ledger(node)
    there = bind(books, pod(5, name="p", direct=direct), node)
    assigned = {**dict(there.annotations), names.ALIYUN_ASSIGNED: "true"}
    books.observe(pod(5, name="p", direct=direct, on="n", notes=assigned), 0.0)
    refuse(books, node, 0.0, direct=direct)
    books.take_grown()
    books.observe(pod(5, name="p", direct=direct, on="n", notes=assigned, phase="Running"), 1.0)
    assert refusal(books, pod(5, direct=direct)) is None
    assert "n" in books.take_grown()


def test_a_pod_that_has_run_all_the_time_proves_nothing() -> None:
    node = facts(8, 8, pin="plugin")
    books = ledger(node)
    books.observe(bound(pod(5, name="p", direct=False, phase="Running"), node, ((0,),)), 0.0)
    refuse(books, node, 1.0)
    books.observe(bound(pod(5, name="p", direct=False, phase="Running", terminating=True), node, ((0,),)), 2.0)
    assert refusal(books, pod(5, direct=False)) is JUST_REFUSED


def test_a_node_that_refused_a_pod_we_sent_elsewhere_does_not_rest() -> None:
    books, who = ledger(facts(8)), pod(5, name="p")
    books.reserve(who, "n", PACK)
    books.observe(pod(5, name="p", on="other", phase="Failed", reason="UnexpectedAdmissionError"), 0.0)
    assert set(books.node_names()) == {"n"}
    assert free(books) == [8]


def test_nothing_is_left_to_look_after_once_a_node_and_its_pods_are_gone() -> None:
    node = facts(8, pin="plugin")
    books = ledger(node)
    refuse(books, node, 0.0)
    books.remove_node("n")
    assert (list(books.nodes()), books.special(), books._timed) == ([], set(), set())


@pytest.mark.parametrize("gone", [False, True])
def test_a_cool_down_ends_when_the_node_changes(gone: bool) -> None:
    node = facts(8, 8, pin="plugin")
    books = ledger(node)
    bind(books, pod(1, direct=False), node)
    refuse(books, node, 0.0)
    if gone:
        books.remove_node("n")
        books.set_node(node)
    else:
        books.set_node(facts(8, 10, pin="plugin"))
    assert refusal(books, pod(5, direct=False)) is None


def test_a_node_whose_cool_down_is_over_costs_a_look_up_again() -> None:
    node = facts(8, pin="plugin")
    books = ledger(node)
    refuse(books, node, 0.0)
    assert books.special()
    books.expire(10.0)
    assert not books.special()


def test_a_failure_that_was_not_kubelets_or_not_ours_starts_no_cool_down() -> None:
    books = ledger(facts(8, pin="plugin"))
    books.observe(pod(5, direct=False, on="n", phase="Failed", reason="UnexpectedAdmissionError"), 0.0)
    assert refusal(books, pod(5, direct=False)) is None
    node = facts(8, pin="plugin")
    there = bind(books, pod(5, direct=False), node)
    books.observe(pod(5, uid=there.uid, direct=False, on="n", phase="Failed", reason="Evicted"), 0.0)
    assert refusal(books, pod(5, direct=False)) is None


# kubelet knows amounts only


def test_the_same_amount_over_another_number_of_gpus_waits_on_plugin_nodes() -> None:
    node = facts(8, 8, pin="plugin")
    books = ledger(node)
    bind(books, pod(4, direct=False, split=2), node)
    assert refusal(books, pod(4, direct=False)) is STILL_STARTING
    assert fits(books, pod(4, direct=False)) == []
    assert fits(books, pod(4, direct=False, split=2)) == ["n"]
    assert fits(books, pod(2, direct=False)) == ["n"]


@pytest.mark.parametrize("split_first", [False, True])
@pytest.mark.parametrize("news", ["running", "assigned"])
def test_it_waits_until_kubelet_has_given_the_other_its_units_and_is_woken(split_first: bool, news: str) -> None:
    node = facts(8, 8, pin="plugin")
    books = ledger(node)
    splits = (2, None) if split_first else (None, 2)
    first, second = (pod(4, direct=False, name=f"p{split}", split=split) for split in splits)
    there = bind(books, first, node)
    assert fits(books, second) == []
    books.take_grown()
    assigned = {names.ALIYUN_ASSIGNED: "true"} if news == "assigned" else {names.ALIYUN_ASSIGNED: "false"}
    notes = {**dict(there.annotations), **assigned}
    phase = "Running" if news == "running" else "Pending"
    books.observe(pod(4, direct=False, name=first.name, split=splits[0], on="n", notes=notes, phase=phase), 1.0)
    assert fits(books, second) == ["n"]
    assert "n" in books.take_grown()


@pytest.mark.parametrize("end", ["gone", "asks otherwise"])
def test_it_is_woken_even_if_no_more_is_free(end: str) -> None:
    node = facts(8, 8, 8, pin="plugin")
    books = ledger(node)
    books.observe(bound(pod(8, name="crowd", direct=False), node, ((0,),)), 0.0)
    books.observe(bound(pod(4, name="like", direct=False), node, ((0,),)), 0.0)
    asked = pod(4, direct=False, split=2)
    assert fits(books, asked) == []
    books.take_grown()
    if end == "gone":
        books.forget("uid-like")
    else:
        books.observe(bound(pod(4, name="like", direct=False, split=2), node, ((0, 1),)), 1.0)
    assert fits(books, asked) == ["n"]
    assert "n" in books.take_grown()


def test_directly_pinned_pods_never_wait_for_one_another() -> None:
    node = facts(8, 8)
    books = ledger(node)
    bind(books, pod(4, split=2), node)
    assert fits(books, pod(4)) == ["n"]


# Whom a change may wake


def test_every_node_where_something_came_free_is_named() -> None:
    node = facts(8)
    books = ledger(node)
    assert books.take_grown() == {"n"}
    books.take_grown()
    there = bind(books, pod(5), node)
    books.observe(there, 0.0)
    assert not books.take_grown()
    books.forget(there.uid)
    assert books.take_grown() == {"n"}


def test_a_gpu_that_is_healthy_again_may_wake_a_pod() -> None:
    books = ledger(facts(8, unhealthy=(0,)))
    books.take_grown()
    books.set_node(facts(8))
    assert books.take_grown() == {"n"}


# Look-ups


def test_pods_of_either_kind_see_only_nodes_that_pin_so() -> None:
    books = ledger(facts(8, name="direct"), facts(8, name="plugin", pin="plugin"), facts(8, name="old", pin="aliyun"))
    every = ("direct", "plugin", "old", "nowhere")
    assert fits(books, pod(5), *every) == ["direct"]
    assert fits(books, pod(5, direct=False), *every) == ["plugin", "old"]
    assert fits(books, pod(2, 2, direct=False), *every) == ["plugin"]


def test_a_pod_that_names_its_unit_sees_only_nodes_that_count_so() -> None:
    books = ledger(facts(8, name="mib"), facts(8, name="gib", unit="GiB"))
    assert fits(books, pod(5), "mib", "gib") == ["mib", "gib"]
    assert fits(books, pod(5, unit="GiB"), "mib", "gib") == ["gib"]
    assert fits(books, pod(2, 2, unit="MiB"), "mib", "gib") == ["mib"]


def test_answers_come_in_the_order_of_the_question_and_only_for_it() -> None:
    books = ledger(*(facts(8, name=name) for name in "abc"))
    assert fits(books, pod(5), "c", "a") == ["c", "a"]


def test_states_of_a_holding_follow_its_life() -> None:
    node, who = facts(8), pod(5)
    books = ledger(node)
    assume(books, who)
    assert holding(books, who).state is State.ASSUMED
    places = books.reserve(who, "n", PACK)
    assert not isinstance(places, Refusal)
    assert holding(books, who).state is State.RESERVED
    books.confirm(bound(who, node, places))
    assert (holding(books, who).state, holding(books, who).seen) == (State.BOUND, False)
    books.observe(bound(who, node, places), 0.0)
    assert holding(books, who).seen


def test_an_event_of_one_node_touches_no_other() -> None:
    books = ledger(*(facts(8, name=f"n{i}") for i in range(50)))
    request = asks(2, 2)
    assert len(books.answers(request, "default", (), Budget(1)).open) == 50
    assert not books.answers(request, "default", list(books.node_names()), Budget(10_000)).open
    assume(books, pod(5), "n7")
    assert list(books.answers(request, "default", (), Budget(1)).open) == ["n7"]
