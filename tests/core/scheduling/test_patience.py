"""Fair waiting: who is kept which GPUs, for how long, and what that leaves to others."""

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import combinations
from typing import Any

import msgspec
import pytest

from gpushare.core.annotations import kept_gpus
from gpushare.core.explain import views
from gpushare.core.explain.report import KeptView
from gpushare.core.facts import names
from gpushare.core.facts.model import NodeFacts, PodFacts, Refusal, Request
from gpushare.core.ledger.holding import Kept
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.placement.cost import Budget
from gpushare.core.placement.fit import Question
from gpushare.core.scheduling import kept_place, patience
from gpushare.core.scheduling.patience import AGAIN_SECONDS, COME_SECONDS, VAIN_SECONDS, Patience
from gpushare.core.scheduling.reach import Reach
from gpushare.core.scheduling.wakeups import WakeUps
from tests.support.builders import bound, facts, ledger, node_state, pod

NOW = 1_800_000_000.0
PATIENCE = 600.0
LONG = PATIENCE + 100.0


def waits(*memory: int, since: float = LONG, **more: Any) -> PodFacts:
    """A pod that has waited for so many seconds."""
    when = datetime.fromtimestamp(NOW - since, UTC).isoformat()
    made = pod(*memory, **{"unschedulable": "0/1 nodes are available"} | more)
    return msgspec.structs.replace(made, waits_since=when)


def filled(where: NodeFacts, *amounts: int) -> list[PodFacts]:
    """One running pod on each GPU that shall not be empty."""
    return [bound(pod(n, name=f"on-{where.name}-{i}"), where, ((i,),)) for i, n in enumerate(amounts) if n]


def world(where: NodeFacts, *amounts: int) -> Ledger:
    books = ledger(where)
    for one in filled(where, *amounts):
        books.observe(one, 0.0)
    return books


class Room:
    """A ledger, the waiting pods, and turns taken at a time."""

    def __init__(self, books: Ledger, *pending: PodFacts, seconds: float = PATIENCE) -> None:
        self.books, self.pending = books, list(pending)
        self.patience = Patience(seconds)
        self.allowed: list[str] | None = None
        self.listed = 0  # how often all nodes were listed
        self.changes = patience.Changes([], [])
        for one in pending:
            books.observe(one, 0.0)

    def at(self, seconds: float = 0.0) -> list[tuple[str, str, tuple[tuple[str, ...], ...]]]:
        """Who is kept what after so many seconds."""
        self.changes = self.patience.update(self.books, self.pending, Reach(self._list, self._open), NOW + seconds)
        assert {kept.pod.uid for kept in self.books.kept()} == set(self.patience.turns)
        return [(kept.pod.name, kept.node, kept.keys) for kept in self.books.kept()]

    def _list(self, pod: PodFacts) -> list[str] | None:
        self.listed += 1
        return self.allowed

    def _open(self, pod: PodFacts, node: str) -> bool:
        return self.allowed is None or node in self.allowed

    def names(self, seconds: float = 0.0) -> list[str]:
        return [name for name, _, _ in self.at(seconds)]


def refusal(books: Ledger, asked: PodFacts, node: str = "n") -> Refusal | None:
    assert isinstance(asked.request, Request)
    return books.refusal(Question(asked.request), node, asked)


# Whose turn it is


def test_a_pod_that_waits_longer_than_the_patience_is_kept_the_gpu_that_needs_least() -> None:
    large = waits(7, name="large")
    room = Room(world(facts(8, 8, 8), 6, 4, 5), large)
    assert room.at() == [("large", "n", (("GPU-n-1",),))]
    assert views.kept(room.books, large) == KeptView("n", [1], 3, "MiB")


def test_nobody_is_kept_anything_before_the_patience_is_over_or_where_there_is_none() -> None:
    assert Room(world(facts(8), 6), waits(7, since=PATIENCE)).at() == []
    assert Room(world(facts(8), 6), waits(7, since=LONG * 1000), seconds=0).at() == []


def test_the_most_important_comes_first_then_the_oldest() -> None:
    young, old = waits(7, name="young"), waits(7, name="old", since=LONG + 50)
    important = waits(7, name="important", priority=5)
    assert Room(world(facts(8), 6), young, old).names() == ["old"]
    assert Room(world(facts(8), 6), young, old, important).names() == ["important"]


def test_a_turn_is_not_taken_away_but_for_a_higher_priority() -> None:
    room = Room(world(facts(8, 8), 6, 6), waits(7, name="first"))
    assert room.names() == ["first"]
    room.pending.append(waits(7, name="older", since=LONG + 500))
    assert room.names(1) == ["first"]
    room.pending.append(waits(7, name="important", priority=1))
    assert room.names(2) == ["important"]
    assert [one.name for one in room.changes.ended] == ["first"]


def test_one_gpu_in_twenty_is_kept_and_at_least_one() -> None:
    for gpus, kept in ((1, 1), (20, 1), (39, 1), (40, 2), (100, 5)):
        books = world(facts(*[8] * gpus), *[6] * gpus)
        room = Room(books, *[waits(7, name=f"p{i}") for i in range(9)])
        room.at()  # a few are looked for at a time
        assert len(room.at(1)) == kept


def test_unhealthy_gpus_do_not_raise_the_limit() -> None:
    books = world(facts(*[8] * 40, unhealthy=[0]), *[6] * 40)
    assert len(Room(books, waits(7, name="a"), waits(7, name="b")).at()) == 1


def test_who_comes_first_may_be_kept_more_than_the_limit() -> None:
    room = Room(world(facts(8, 8, 8), 6, 4, 5), waits(14, split=2, name="wide"), waits(7, name="x", since=LONG - 1))
    assert room.at() == [("wide", "n", (("GPU-n-1", "GPU-n-2"),))]


def test_nobody_passes_one_whose_gpus_are_more_than_is_left() -> None:
    books = world(facts(*[8] * 40), *[6] * 40)
    first, wide = waits(7, name="first", since=LONG + 9), waits(14, split=2, name="wide", since=LONG + 8)
    room = Room(books, first, wide, waits(7, name="late"))
    assert room.names() == ["first"]
    books.forget(first.uid)
    room.pending.remove(first)
    assert room.names(1) == ["wide"]


def test_a_pod_no_gpu_is_large_enough_for_keeps_nothing_from_others() -> None:
    room = Room(world(facts(8), 6), waits(9, name="huge", since=LONG + 9), waits(7, name="large"))
    assert room.names() == ["large"]


def test_nodes_whose_gpus_are_too_small_for_an_mps_share_do_not_hide_one_that_is_large_enough() -> None:
    """Only so many nodes are looked at for one pod. Its memory is in bytes: each node counts it in its own unit."""
    books, large = Ledger(), facts(16, name="z", unit="GiB", slots=4)
    for number in range(kept_place.MOST_NODES):
        books.set_node(facts(8192, name=f"n{number}", slots=4))
    books.set_node(large)
    books.observe(bound(pod(9, name="on-z"), large, ((0,),)), 0.0)
    place = kept_place.closest(books, waits(mps=1, slot_memory="10Gi"), None, (), Budget(10_000))
    assert place is not None
    assert (place.node, place.short) == ("z", 3)


def test_nodes_that_are_kept_for_others_do_not_hide_one_where_less_is_missing() -> None:
    """By what is free they look alike; on those that are kept the other GPU would have to come free."""
    books = Ledger()
    for number in range(kept_place.MOST_NODES + 1):
        where = facts(8, 8, name=f"n{number:03}")
        books.set_node(where)
        for running in filled(where, 3, 6):
            books.observe(running, 0.0)
        if number < kept_place.MOST_NODES:
            books.keep(Kept(waits(7, name=f"older-{number}"), where.name, ((where.gpus[0].key,),), NOW - LONG))
    place = kept_place.closest(books, waits(7, name="next"), None, (), Budget(100_000))
    assert place is not None
    assert (place.node, place.short) == (f"n{kept_place.MOST_NODES:03}", 2)


def test_a_pod_that_has_room_waits_for_something_else() -> None:
    room = Room(world(facts(8, 8), 6, 0), waits(7, name="for-cpu"))
    assert room.at() == []
    room.books.observe(bound(pod(6), facts(8, 8), ((1,),)), 0.0)
    assert room.names(1) == []
    assert room.names(AGAIN_SECONDS) == ["for-cpu"]


def test_a_nominated_pod_has_its_promise_already() -> None:
    assert Room(world(facts(8), 6), waits(7, nominated="n")).at() == []


def test_time_behind_a_gate_does_not_count() -> None:
    gated = waits(7, name="gated", since=LONG * 100)
    room = Room(world(facts(8), 6), msgspec.structs.replace(gated, unschedulable=""))
    assert room.names() == []
    room.pending = [gated]
    assert room.names(PATIENCE - 1) == []
    assert room.names(PATIENCE + 1) == ["gated"]


def test_a_condition_that_names_no_time_counts_from_when_it_is_seen() -> None:
    for written in ("", "yesterday", "2126-01-01T00:00:00Z"):
        room = Room(world(facts(8), 6), msgspec.structs.replace(waits(7, name="p"), waits_since=written))
        assert room.names() == []
        assert room.names(PATIENCE + 1) == ["p"]


# Where


def test_only_nodes_that_kube_scheduler_would_let_it_go_to_are_looked_at() -> None:
    near, far = facts(8, name="near"), facts(8, name="far")
    room = Room(ledger(near, far), waits(7, name="p"))
    for one in (*filled(near, 2), *filled(far, 6)):
        room.books.observe(one, 0.0)
    room.allowed = ["far", "unknown"]
    assert room.at() == [("p", "far", (("GPU-far-0",),))]
    room.allowed = ["near"]
    assert room.at(1) == [("p", "near", (("GPU-near-0",),))]


def test_nodes_of_another_unit_or_pin_or_that_are_closed_are_not_chosen() -> None:
    books = ledger(
        facts(8, name="gib", unit="GiB"), facts(8, name="plugin", pin="plugin"),
        facts(8, name="down", state="draining"), facts(8, name="ok"),
    )  # fmt: skip
    for state in list(books.nodes()):
        assert state.facts is not None
        books.observe(bound(pod(7 if state.name == "ok" else 2), state.facts, ((0,),)), 0.0)
    assert Room(books, waits(7, name="p", unit="MiB")).at() == [("p", "ok", (("GPU-ok-0",),))]


def test_whole_gpus_are_kept_where_least_is_used_not_where_most_is_free() -> None:
    room = Room(world(facts(8, 16), 2, 4), waits(whole=1, name="whole"))
    assert room.at() == [("whole", "n", (("GPU-n-0",),))]
    refused = refusal(room.books, pod(13))
    assert refused is not None
    assert refused.code == "NoSingleGpu"


def test_several_containers_are_kept_what_a_plan_needs() -> None:
    room = Room(world(facts(8, 8, 8), 7, 4, 6), waits(6, 5, name="two"))
    assert room.at() == [("two", "n", (("GPU-n-1",), ("GPU-n-2",)))]
    assert views.kept(room.books, room.pending[0]) == KeptView("n", [1, 2], 2 + 3, "MiB")


def _least(where: NodeFacts, used: Sequence[int], each: int, gpus: int) -> int | None:
    short = [each - (gpu.total - taken) for gpu, taken in zip(where.gpus, used, strict=True) if gpu.total >= each]
    return min((sum(max(s, 0) for s in chosen) for chosen in combinations(short, gpus)), default=None)


def test_what_must_come_free_is_the_least_there_is_for_one_container_on_any_number_of_gpus() -> None:
    rnd, found = random.Random(7), 0
    for _ in range(300):
        totals = [rnd.randint(4, 12) for _ in range(rnd.randint(1, 5))]
        used = [rnd.randint(0, total) for total in totals]
        gpus, each = rnd.randint(1, 3), rnd.randint(1, 12)
        where = facts(*totals)
        place = kept_place.closest(world(where, *used), waits(each * gpus, split=gpus), None, (), Budget(10_000))
        least = _least(where, used, each, gpus) if gpus <= len(totals) else None
        assert (place.short if place is not None else None) == least
        found += least is not None
    assert found > 100


# What it leaves to others


def test_what_comes_free_goes_to_nobody_of_its_priority_until_it_is_placed() -> None:
    where, large = facts(8), waits(7, name="large", priority=3)
    books = world(where, 6)
    room = Room(books, large)
    room.at()
    books.forget("uid-on-n-0")
    kept_from = refusal(books, pod(2, priority=3))
    assert kept_from == Refusal(
        "KeptForOther", "no single GPU has 2 MiB free besides what is kept for a pod that has waited too long"
    )
    assert refusal(books, pod(2, priority=0)) == kept_from
    assert refusal(books, pod(1)) is None  # beside it
    assert refusal(books, pod(8, priority=4)) is None
    assert refusal(books, large) is None
    assert books.assume(large, "n", "binpack", 0.0) == ((0,),)
    assert refusal(books, pod(2, priority=4)) == Refusal("NoSingleGpu", "no single GPU has 2 MiB free")


def test_a_node_that_is_full_anyway_says_so() -> None:
    room = Room(world(facts(8), 6), waits(7, name="large"))
    room.at()
    refused = refusal(room.books, pod(3))
    assert refused is not None
    assert refused.code == "NoSingleGpu"


def test_of_two_that_are_kept_the_same_gpu_the_older_goes_first() -> None:
    where = facts(*[16] * 40)
    books = world(where, *[12] * 40)
    old, young = waits(8, name="old", since=LONG + 5), waits(8, name="young")
    for one in (old, young):
        books.keep(Kept(one, "n", (("GPU-n-0",),), NOW - (LONG + 5 if one is old else LONG)))
    books.forget("uid-on-n-0")
    books.observe(bound(pod(8), where, ((0,),)), 0.0)
    assert refusal(books, old) is None
    refused = refusal(books, young)
    assert refused is not None
    assert refused.code == "KeptForOther"


def test_the_next_pod_is_kept_what_the_first_leaves() -> None:
    where = facts(*[16] * 40)
    books = world(where, 12, *[16] * 39)
    room = Room(books, waits(8, name="a", since=LONG + 5), waits(8, name="b"))
    assert room.at() == [("a", "n", (("GPU-n-0",),)), ("b", "n", (("GPU-n-1",),))]  # 4 short, 8 short
    assert views.kept(books, room.pending[1]) == KeptView("n", [1], 8, "MiB")


def test_whoever_is_kept_something_is_woken_when_it_is_free_before_older_ones() -> None:
    where, large = facts(8), waits(7, name="large", created="2026-11-15T13:00:00Z")
    books, waiting = world(where, 8), WakeUps()
    room, small = Room(books, large), pod(2, name="small", created="2026-11-15T12:00:00Z")
    room.at()
    for one in (small, large):
        waiting.refuse(one)
    books.take_grown()
    books.forget("uid-on-n-0")
    assert [one.name for one in waiting.due(books, 1.0)] == ["large"]


# When it ends


def _seen_placed(room: Room) -> None:
    room.books.observe(bound(room.pending.pop(), facts(8, 8), ((1,),)), 0.0)


def _gone(room: Room) -> None:
    room.books.forget(room.pending.pop().uid)


def _ending(room: Room) -> None:
    room.pending[0] = msgspec.structs.replace(room.pending[0], terminating=True)
    room.books.observe(room.pending[0], 0.0)


def _asks_otherwise(room: Room) -> None:
    room.pending[0] = waits(2, name="large")
    room.books.observe(room.pending[0], 0.0)


@pytest.mark.parametrize("end", [_seen_placed, _gone, _ending, _asks_otherwise])
def test_when_it_is_placed_or_gone_those_that_waited_because_of_it_are_woken(end: Any) -> None:
    where = facts(8, 8)
    room, waiting, small = Room(world(where, 8, 4), waits(7, name="large")), WakeUps(), pod(2, name="small")
    assert room.names() == ["large"]
    waiting.refuse(small)
    room.books.forget("uid-on-n-0")
    room.books.observe(bound(pod(8), where, ((0,),)), 0.0)
    assert waiting.due(room.books, 1.0) == []
    end(room)
    if end is _seen_placed:
        room.books.forget("uid-on-n-1")
        room.books.forget("uid-large")
    assert [one.name for one in waiting.due(room.books, 2.0)] == ["small"]
    assert room.at(1) == []


def test_it_stays_on_its_gpu_even_if_another_needs_less_by_now() -> None:
    room = Room(world(facts(8, 8), 4, 5), waits(7, name="large"))
    assert room.at() == [("large", "n", (("GPU-n-0",),))]
    room.books.forget("uid-on-n-1")
    room.books.observe(bound(pod(2), facts(8, 8), ((1,),)), 0.0)
    assert room.at(1) == [("large", "n", (("GPU-n-0",),))]
    assert room.changes == patience.Changes([], [])


@pytest.mark.parametrize(
    "now", [facts(8, 8, unhealthy=[0]), facts(6, 8), facts(8, uuids=["GPU-n-1"])], ids=["unhealthy", "shrunk", "gone"]
)
def test_a_gpu_that_can_no_longer_serve_it_is_given_up_for_another(now: NodeFacts) -> None:
    room = Room(world(facts(8, 8), 4, 5), waits(7, name="large"))
    room.at()
    room.books.set_node(now)
    assert room.at(1) == [("large", "n", (("GPU-n-1",),))]
    assert [kept.keys for kept in room.changes.given] == [(("GPU-n-1",),)]
    assert room.changes.ended == []


def test_a_node_that_closes_or_goes_is_given_up() -> None:
    room = Room(world(facts(8), 4), waits(7, name="large"))
    room.at()
    room.books.set_node(facts(8, state="draining"))
    assert room.at(1) == []
    assert [one.name for one in room.changes.ended] == ["large"]
    room.books.set_node(facts(8))
    assert room.names(AGAIN_SECONDS + 1) == ["large"]
    room.books.remove_node("n")
    room.books.forget("uid-on-n-0")
    assert room.at(AGAIN_SECONDS + 2) == []
    assert not room.books.nodes()


def test_a_turn_in_which_nothing_comes_free_for_a_day_ends_and_the_next_is_elsewhere() -> None:
    near, far = facts(8, name="near"), facts(8, name="far")
    room = Room(ledger(near, far), waits(7, name="p"))
    for one in (*filled(near, 2), *filled(far, 6)):
        room.books.observe(one, 0.0)
    assert room.at() == [("p", "near", (("GPU-near-0",),))]
    assert len(room.at(VAIN_SECONDS - 1)) == 1
    assert room.at(VAIN_SECONDS + 1) == []
    assert room.at(2 * VAIN_SECONDS - 1) == []
    assert room.at(2 * VAIN_SECONDS + 2) == [("p", "far", (("GPU-far-0",),))]
    assert len(room.at(4 * VAIN_SECONDS)) == 1  # twice as long
    assert room.at(4 * VAIN_SECONDS + 9) == []


def test_whatever_comes_free_prolongs_a_turn() -> None:
    where = facts(8)
    room = Room(world(where), waits(7, name="p"))
    for i in range(4):
        room.books.observe(bound(pod(2, name=f"part-{i}"), where, ((0,),)), 0.0)
    for i in range(3):
        assert room.names((i + 0.9) * VAIN_SECONDS) == ["p"]
        room.books.forget(f"uid-part-{i}")
    assert room.names(3.1 * VAIN_SECONDS) == ["p"]


def test_a_pod_that_does_not_come_although_all_is_free_loses_its_turn() -> None:
    room = Room(world(facts(8), 6), waits(7, name="p"))
    room.at()
    room.books.forget("uid-on-n-0")
    assert room.names(1) == ["p"]
    assert room.names(COME_SECONDS) == ["p"]
    assert room.names(COME_SECONDS + 2) == []


def test_a_pod_on_its_way_keeps_its_turn_however_long_its_volumes_take() -> None:
    room = Room(world(facts(8), 6), waits(7, name="p"))
    room.at()
    room.books.forget("uid-on-n-0")
    room.books.assume(room.pending[0], "n", "binpack", 0.0)
    assert room.names(10 * COME_SECONDS) == ["p"]
    room.books.release("uid-p")
    assert room.names(10 * COME_SECONDS + 1) == ["p"]


# What is written on the pod


def written(kept: Kept) -> PodFacts:
    return msgspec.structs.replace(kept.pod, annotations=((names.KEPT, kept_gpus.write(kept.node, kept.keys)),))


def test_an_extender_that_starts_goes_on_where_the_one_before_stood() -> None:
    where = facts(8, 8)
    room = Room(world(where, 4, 5), waits(7, name="p"))
    room.at()
    again = Room(world(where, 6, 2), written(room.changes.given[0]))  # another would need less by now
    assert again.at() == [("p", "n", (("GPU-n-0",),))]


@pytest.mark.parametrize("seconds", [PATIENCE, 0.0])
def test_a_note_means_nothing_on_a_pod_whose_turn_it_is_not_and_is_taken_off_once(seconds: float) -> None:
    forged = written(Kept(waits(7, name="p", since=10), "n", (("GPU-n-0",),), 0.0))
    room = Room(world(facts(8), 6), forged, seconds=seconds)
    assert room.at() == []
    assert [one.name for one in room.changes.ended] == ["p"]
    assert room.at(1) == []
    assert room.changes.ended == []


@pytest.mark.parametrize("seconds", [PATIENCE, 0.0])
def test_a_note_that_is_written_again_is_taken_off_again(seconds: float) -> None:
    plain = waits(7, name="p", since=10)
    forged = written(Kept(plain, "n", (("GPU-n-0",),), 0.0))
    room = Room(world(facts(8), 6), forged, seconds=seconds)
    ended: list[list[str]] = []
    for seen in (forged, plain, forged, written(Kept(plain, "m", (("GPU-m-0",),), 0.0))):
        room.pending = [seen]
        room.at(len(ended))
        ended.append([one.name for one in room.changes.ended])
    assert ended == [["p"], [], ["p"], ["p"]]


def test_nothing_is_remembered_of_pods_that_are_gone_even_without_patience() -> None:
    room = Room(world(facts(8), 6), seconds=0.0)
    for i in range(300):
        room.pending = [written(Kept(waits(7, name=f"p{i}", since=10), "n", (("GPU-n-0",),), 0.0))]
        room.at(i)
    assert len(room.patience._wiped) <= 1


def test_the_note_of_a_pod_that_is_placed_is_taken_off_and_of_one_that_is_gone_it_is_not() -> None:
    where = facts(8)
    for placed in (True, False):
        large = waits(7, name="p")
        room = Room(world(where, 6), large)
        room.at()
        room.books.forget("uid-on-n-0")
        if placed:
            room.books.observe(bound(pod(7, name="p"), where, ((0,),)), 0.0)
        else:
            room.books.forget(large.uid)
        room.pending.remove(large)
        assert room.at(1) == []
        assert [one.name for one in room.changes.ended] == (["p"] if placed else [])


def test_the_nodes_open_to_a_pod_are_listed_to_choose_one_and_not_while_its_turn_goes_on() -> None:
    room = Room(world(facts(8), 6), waits(7, name="p"))
    for seconds in range(5):
        assert room.names(seconds) == ["p"]
    assert room.listed == 1
    room.allowed = []
    assert room.names(5) == []


@pytest.mark.parametrize(
    "note",
    ["", "x", "{}", "[]", '{"node": "n", "gpus": []}', '{"node": "n", "gpus": [[]]}', '{"node": "n", "gpus": [["z"]]}',
     '{"node": "z", "gpus": [["GPU-n-0"]]}', '{"node": "n", "gpus": [["GPU-n-0", "GPU-n-1"]]}', "\ud800"],
)  # fmt: skip
def test_a_note_that_means_nothing_is_passed_over(note: str) -> None:
    forged = msgspec.structs.replace(waits(7, name="p"), annotations=((names.KEPT, note),))
    assert Room(world(facts(8, 8), 6, 5), forged).at() == [("p", "n", (("GPU-n-1",),))]
    books = world(facts(8, 8), 6, 5)
    patience.show(books, [forged])
    assert not books.kept()


def test_who_looks_sees_what_is_kept_by_the_annotation_alone() -> None:
    room = Room(world(facts(8, 8), 4, 5), waits(7, name="p"))
    room.at()
    books = world(facts(8, 8), 4, 5)
    patience.show(books, [written(room.changes.given[0])])
    assert [kept.keys for kept in books.kept()] == [(("GPU-n-0",),)]


# What is remembered of a node's room


def test_what_is_left_to_whom_is_worked_out_again_whenever_something_changes() -> None:
    """Any history: what is answered is what a ledger would answer that has remembered nothing."""
    rnd, where = random.Random(11), facts(16, 16, 16)
    books, checked = ledger(where), 0
    kept_pods: list[PodFacts] = []
    running: list[PodFacts] = []
    for step in range(400):
        what = rnd.randrange(5)
        if what == 0:
            one = bound(
                pod(rnd.randint(1, 8), name=f"r{step}", priority=rnd.randint(0, 2)), where, ((rnd.randrange(3),),)
            )
            running.append(one)
            books.observe(one, 0.0)
        elif what == 1 and running:
            books.forget(running.pop(rnd.randrange(len(running))).uid)
        elif what == 2 and len(kept_pods) < 4:
            one = waits(rnd.randint(1, 16), name=f"k{step}", priority=rnd.randint(0, 2))
            kept_pods.append(one)
            books.keep(Kept(one, "n", ((f"GPU-n-{rnd.randrange(3)}",),), float(step)))
        elif what == 3 and kept_pods:
            books.keep_no_longer(kept_pods.pop(rnd.randrange(len(kept_pods))).uid)
        elif what == 4:
            asked = pod(rnd.randint(1, 9), name=f"nom{step % 3}", nominated="n", priority=rnd.randint(0, 2))
            books.observe(asked, 0.0) if rnd.random() < 0.6 else books.forget(asked.uid)
        state = node_state(books, "n")
        for asker in (*kept_pods, pod(1, priority=0), pod(1, priority=1), pod(1, priority=3)):
            room = state.room_for(asker)
            assert room is not None
            fresh = [max(16 - taken, 0) for taken in state._taken(asker, where, (), kept=True).units]
            assert list(room.free) == fresh
            checked += room is not state.room
    assert checked > 500


def test_nodes_that_could_never_take_the_pod_hide_none_that_could() -> None:
    large = facts(80, name="zz-large")
    books = ledger(large, *(facts(16, name=f"small-{i:03}") for i in range(100)))
    for one in filled(large, 60):
        books.observe(one, 0.0)
    assert [(name, node) for name, node, _ in Room(books, waits(40, name="big")).at()] == [("big", "zz-large")]
    many = facts(*[8] * 8, name="zz-many")
    books = ledger(many, *(facts(8, name=f"small-{i:03}") for i in range(100)))
    for one in filled(many, *[1] * 8):
        books.observe(one, 0.0)
    assert [node for _, node, _ in Room(books, waits(whole=4, name="wide")).at()] == ["zz-many"]


def test_a_pod_that_is_assumed_again_and_again_but_never_comes_loses_its_turn() -> None:
    where = facts(8)
    room = Room(world(where, 5), waits(6, name="stuck"))
    assert room.names() == ["stuck"]
    room.books.forget(next(iter(room.books.holdings())).pod.uid)  # all is free
    held_until = 0.0
    for seconds in range(1, 400):
        if seconds % 40 < 10:
            if room.books.holding(room.pending[0].uid) is None:
                room.books.assume(room.pending[0], "n", "binpack", float(seconds))
        else:
            room.books.release(room.pending[0].uid)
        if room.names(float(seconds)):
            held_until = float(seconds)
    assert held_until < 5 * COME_SECONDS
