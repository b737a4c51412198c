"""Whole lives of pods without HTTP, watches or a clock: what a simulator would do."""

import msgspec
import pytest

from gpushare.core.facts import names, request
from gpushare.core.facts.model import PodFacts, Refusal, Request
from gpushare.core.ledger.holding import State
from gpushare.core.scheduling.life import Life, Reservation
from tests.support.builders import api_pod, facts, free, ledger, pod

NODES = ["a", "b"]


@pytest.fixture
def life() -> Life:
    return Life(ledger(facts(8, name="a"), facts(8, 8, name="b")), policy="binpack")


def reserve(life: Life, who: PodFacts, node: str) -> Reservation:
    assert isinstance(who.request, Request)
    reservation = life.reserve(who, who.request, node, extender="me", nanoseconds=1)
    assert not isinstance(reservation, Refusal)
    return reservation


def bound(life: Life, who: PodFacts) -> PodFacts:
    """Asked about, bound, and seen bound."""
    (node,) = life.choose(who, NODES, 0.0).fits
    reservation = reserve(life, who, node)
    life.confirm(reservation)
    life.undo(who.uid)  # too late: it is bound
    seen = request.bound(who, node, reservation.annotations)
    assert not life.observe(seen, 0.0)
    return seen


def state(life: Life, who: PodFacts) -> State | None:
    holding = life.ledger.holding(who.uid)
    return holding.state if holding is not None else None


def test_a_pod_is_assumed_reserved_bound_and_ends(life: Life) -> None:
    who = pod(5)
    assert life.observe(who, 0.0)  # it waits, and that is news
    assert life.choose(who, NODES, 0.0).fits == ["a"]
    assert (state(life, who), free(life.ledger, "a")) == (State.ASSUMED, [3])
    reservation = reserve(life, who, "a")
    assert (state(life, who), reservation.places) == (State.RESERVED, ((0,),))
    assert reservation.annotations[names.EXTENDER] == "me"
    life.confirm(reservation)
    assert (state(life, who), who.uid in life.pending.shown) == (State.BOUND, False)
    life.observe(msgspec.structs.replace(request.bound(who, "a", reservation.annotations), finished=True), 0.0)
    assert (state(life, who), free(life.ledger, "a")) == (None, [8])


def test_filter_answers_all_nodes_that_fit_and_prioritize_assumes_the_best(life: Life) -> None:
    who = pod(5)
    assert life.filter(who, NODES, 0.0).fits == NODES
    assert state(life, who) is None
    assert life.prioritize(who, NODES, 0.0)[0] == ("a", 10)
    assert state(life, who) is State.ASSUMED


def test_a_pod_that_fits_nowhere_is_refused_remembered_and_woken_when_it_fits(life: Life) -> None:
    first, second = bound(life, pod(8)), pod(6)
    for filler in (pod(8), pod(8)):
        bound(life, filler)
    answer = life.choose(second, NODES, 0.0)
    assert (answer.fits, {refusal.code for refusal in answer.refusals.values()}) == ([], {"NoSingleGpu"})
    assert (second.uid in life.wakeups, life.pending.get(second.uid)) == (True, second)
    life.due(0.0)
    life.forget(first.uid)
    assert life.due(1.0) == [second]
    assert life.choose(second, NODES, 1.0).fits == [first.node]
    assert second.uid not in life.wakeups


def test_a_binding_that_was_not_written_leaves_nothing(life: Life) -> None:
    who = pod(5)
    reserve(life, who, "b")
    life.undo(who.uid)
    assert (state(life, who), free(life.ledger, "b")) == (None, [8, 8])


def test_a_reservation_whose_annotations_cannot_be_made_leaves_nothing(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ArithmeticError

    monkeypatch.setattr("gpushare.core.annotations.pod_gpus.write", fails)
    who = pod(5)
    with pytest.raises(ArithmeticError):
        reserve(life, who, "a")
    assert state(life, who) is None


def test_a_pod_without_a_uid_is_answered_and_changes_nothing(life: Life) -> None:
    nobody = msgspec.structs.replace(pod(5), uid="")
    assert life.choose(nobody, NODES, 0.0).fits == ["a"]
    assert not life.choose(msgspec.structs.replace(nobody, request=pod(9).request), NODES, 0.0).fits
    assert (len(life.ledger.holdings()), len(life.wakeups), life.pending.get("")) == (0, 0, None)


def test_a_pod_that_asks_no_gpu_fits_everywhere_and_a_senseless_request_nowhere(life: Life) -> None:
    who = pod(5)
    assert life.choose(msgspec.structs.replace(who, request=None), NODES, 0.0).fits == NODES
    senseless = Refusal("Invalid", "makes no sense")
    answer = life.choose(msgspec.structs.replace(who, request=senseless), NODES, 0.0)
    assert (answer.fits, answer.invalid) == ([], senseless)
    assert life.prioritize(msgspec.structs.replace(who, request=senseless), NODES, 0.0) == []


def test_only_the_nominated_node_is_called_resolvable(life: Life) -> None:
    for _ in range(3):
        bound(life, pod(8))
    answer = life.choose(pod(8, nominated="a"), NODES, 0.0)
    assert (list(answer.refusals), list(answer.resolvable)) == (["b"], ["a"])


def test_preemption_adds_the_pods_that_hold_the_gpu(life: Life) -> None:
    low = [bound(life, pod(8)) for _ in range(3)]
    first = next(one for one in low if one.node == "a")
    assert life.preempt(pod(8, priority=10), {"a": [], "gone": []}) == {"a": [first.uid]}
    assert life.preempt(pod(8), {"a": []}) == {}


def test_a_restored_cluster_makes_a_bound_pod_wait_again(life: Life) -> None:
    who = pod(8)
    bound(life, who)
    assert life.unbind(who, 0.0)
    assert (state(life, who), who.uid in life.pending.shown, free(life.ledger, "a")) == (None, True, [8])


def test_a_pod_that_a_scheduler_sends_is_read_unless_the_watch_has_shown_that_version(life: Life) -> None:
    sent = api_pod(5, name="p")
    sent.metadata.resource_version = "7"
    shown = life.facts(api_pod(5, name="p"), None)
    life.observe(shown, 0.0, "7")
    assert life.asked(sent, None) is shown
    sent.metadata.resource_version = "8"
    sent.spec.priority = 9
    assert life.asked(sent, None).priority == 9
    life.observe(shown, 0.0)  # in a version that nobody told
    sent.metadata.resource_version = ""
    assert life.asked(sent, None).priority == 9
    life.observe(shown, 0.0, "8")
    life.forget(shown.uid)
    assert life.asked(sent, None).priority == 9


def test_where_points_of_nodes_count_a_pod_that_a_scheduler_sends_is_always_read(life: Life) -> None:
    """What counts for them may have changed since the watch has shown it."""
    sent = api_pod(5, name="p", policy="metric")
    sent.metadata.resource_version = "7"
    shown = life.facts(sent, None)
    life.observe(shown, 0.0, "7")
    again = life.asked(sent, None)
    assert again == shown
    assert again is not shown
