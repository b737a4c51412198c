"""What counts of a pod once it is bound: its spec, and what only gpushare may write. In the unit its node counts in."""

from typing import Any

import pytest

from gpushare.core.annotations import pod_gpus
from gpushare.core.facts import names, request
from gpushare.core.facts.model import Charges, NodeFacts, Request
from tests.support.builders import api_pod, bound, container, facts, free, ledger, pod

GIB = facts(15, 15, unit="GiB", pin="plugin")
MIB = facts(15360, 15360, pin="plugin")


def moved(before: NodeFacts, after: NodeFacts, *memory: int, places: Any, **more: Any) -> Charges | None:
    """What a pod that was bound to the one node holds when it has become the other."""
    return pod_gpus.read(bound(pod(*memory, direct=False, **more), before, places), after)


# The keys of users


@pytest.mark.parametrize(
    "later",
    [
        {"policy": "x"},
        {"split": 2},
        {"split": 7},
        {"split": "many"},
        {"split_label": 2},
        {"unit": "x"},
        {"unit": "GiB"},
    ],
)
@pytest.mark.parametrize("direct", [True, False])
def test_what_a_user_writes_on_a_bound_pod_changes_nothing(direct: bool, later: dict[str, Any]) -> None:
    where = facts(8, 8, pin="direct" if direct else "plugin")
    there = bound(pod(6, name="p", direct=direct), where, ((1,),))
    seen = request.facts(api_pod(6, name="p", direct=direct, on="n", notes=dict(there.annotations), **later), "MiB")
    assert seen.request == there.request
    assert pod_gpus.read(seen, where) == ((1, 6, 0),)


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("wrote", [{"split": 2}, {"split_label": 2}, {"split": 2, "unit": "MiB", "policy": "spread"}])
def test_a_binding_reads_back_as_it_was_confirmed(direct: bool, wrote: dict[str, Any]) -> None:
    """Else every pod would seem to change just after it was bound, and others would be woken for nothing."""
    where = facts(8, 8, 8, pin="direct" if direct else "plugin")
    there = bound(pod(6, 2, name="p", direct=direct, **wrote), where, ((1, 2), (0, 1)))
    shown = api_pod(6, 2, name="p", direct=direct, on="n", notes=dict(there.annotations), **wrote)
    assert request.facts(shown, None) == there
    assert pod_gpus.read(there, where) == ((0, 1, 0), (1, 4, 0), (2, 3, 0))


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize(
    "written", ['{"0":{"0":3,"1":4}}', '{"0":{"0":6,"1":6}}', '{"0":{"0":2,"1":2,"2":2,"3":2}}', "{"]
)
def test_a_split_that_does_not_match_the_amount_is_none(direct: bool, written: str) -> None:
    notes = {names.ALLOCATION: written, f"{names.VISIBLE_PREFIX}0": "GPU-n-0,GPU-n-1,GPU-n-2,GPU-n-3"}
    seen = pod(6, direct=direct, on="n", split=2, notes=notes)
    assert isinstance(seen.request, Request)
    assert [share.gpus for share in seen.request.shares] == [1]
    assert pod_gpus.read(seen, facts(8, 8, 8, 8, pin="direct" if direct else "plugin")) is None


# Bound by hand


@pytest.mark.parametrize("asked", [{"whole": 2}, {"containers": [container("a", "15Ki")]}, {"split": "many"}])
def test_a_pod_bound_by_hand_to_a_direct_node_counts_on_no_gpu(asked: dict[str, Any]) -> None:
    books = ledger(facts(8, 6))
    books.observe(pod(*(() if "containers" in asked else (5,)), on="n", **asked), 0.0)
    assert free(books) == [8, 6]


@pytest.mark.parametrize("key", [names.EXTENDER, names.ALLOCATION, names.ALIYUN_IDX, f"{names.VISIBLE_PREFIX}0"])
def test_a_pod_that_still_has_one_annotation_of_ours_counts_on_every_gpu(key: str) -> None:
    books = ledger(facts(8, 6))
    books.observe(pod(5, on="n", notes={key: "broken"}), 0.0)
    assert free(books) == [3, 1]


def test_a_pod_with_one_container_that_may_see_every_gpu_counts_on_every_gpu() -> None:
    books = ledger(facts(8, 6))
    containers = [container("a", 2, visible=f"{names.VISIBLE_PREFIX}0"), container("b", 3)]
    books.observe(pod(containers=containers, direct=False, on="n"), 0.0)
    assert free(books) == [3, 1]


# Units


def test_gib_on_a_node_that_counts_mib_are_1024_times_as_much() -> None:
    assert moved(GIB, MIB, 15, places=((1,),)) == ((1, 15360, 0),)
    assert moved(GIB, MIB, 8, split=2, places=((0, 1),)) == ((0, 4096, 0), (1, 4096, 0))
    assert moved(GIB, MIB, 2, init=(5,), places=((0,), (0,))) == ((0, 5120, 0),)


def test_mib_on_a_node_that_counts_gib_are_rounded_up_once_for_each_gpu() -> None:
    assert moved(MIB, GIB, 12000, places=((0,),)) == ((0, 12, 0),)
    assert moved(MIB, GIB, 7681, 7679, places=((0,), (0,))) == ((0, 15, 0),)
    assert moved(MIB, GIB, 7681, 7679, places=((0,), (1,))) == ((0, 8, 0), (1, 8, 0))


def test_a_whole_gpu_is_whole_in_any_unit() -> None:
    odd = facts(16376, 16376, pin="plugin")
    assert moved(GIB, odd, whole=1, places=((1,),)) == ((1, 16376, 0),)
    assert moved(odd, GIB, whole=1, places=((1,),)) == ((1, 15, 0),)


def test_a_gpu_that_grew_or_shrank_counts_in_its_unit_all_the_same() -> None:
    assert moved(MIB, facts(15000, 9000, pin="plugin"), 8000, places=((1,),)) == ((1, 8000, 0),)
    assert moved(MIB, facts(196608, pin="plugin"), 8000, places=((0,),)) == ((0, 8000, 0),)
    assert moved(GIB, facts(9, 3, unit="GiB", pin="plugin"), 8, places=((1,),)) == ((1, 8, 0),)


def test_who_is_on_no_known_gpu_is_converted_as_well() -> None:
    lost = bound(pod(8, direct=False), facts(15, unit="GiB", pin="plugin", indices=[5]), ((0,),))
    books = ledger(MIB)
    books.observe(lost, 0.0)
    assert free(books) == [7168, 7168]
    refused = pod(
        containers=[container("a", "8k"), container("b", "1e-1")],
        direct=False,
        on="n",
        notes={"ALIYUN_COM_GPU_MEM_DEV": "15360"},
    )
    books = ledger(GIB)
    books.observe(refused, 0.0)
    assert free(books) == [7, 7]


def test_a_forged_size_of_its_gpu_never_makes_a_pod_count_as_less() -> None:
    forged = pod(15, direct=False, on="n", notes={names.ALIYUN_IDX: "1", names.ALIYUN_DEV: "15360"})
    assert pod_gpus.read(forged, GIB) == ((1, 15, 0),)


@pytest.mark.parametrize("said", ["", "0", "-15", "fifteen", "9" * 40, "１５"])
def test_a_size_that_is_none_says_nothing_about_the_unit(said: str) -> None:
    there = pod(15, direct=False, on="n", notes={names.ALIYUN_IDX: "1", names.ALIYUN_DEV: said})
    assert pod_gpus.written_in(there, MIB) is None
    assert pod_gpus.read(there, MIB) == ((1, 15, 0),)


def test_a_binding_under_way_never_counts_as_less_because_its_node_counts_anew() -> None:
    books, who = ledger(GIB), pod(8, direct=False)
    places = books.reserve(who, "n", "binpack")
    books.set_node(MIB)
    assert free(books) == [15360 - 8192, 15360]
    assert isinstance(places, tuple)
    books.confirm(bound(who, GIB, places))
    assert free(books) == [15360 - 8192, 15360]


# MPS shares: their memory is not in the spec


MPS_NODE = facts(8, 12, slots=4)


@pytest.mark.parametrize("memory", [None, "3Mi"])
def test_an_mps_share_reads_back_as_it_was_confirmed(memory: str | None) -> None:
    there = bound(pod(mps=2, slot_memory=memory, name="p"), MPS_NODE, ((0, 1),))
    seen = request.facts(api_pod(mps=2, slot_memory="9Mi", name="p", on="n", notes=dict(there.annotations)), None)
    assert seen.request == there.request
    held = ((0, 3, 1), (1, 3, 1)) if memory else ((0, 2, 1), (1, 3, 1))
    assert pod_gpus.read(seen, MPS_NODE) == pod_gpus.read(there, MPS_NODE) == held


@pytest.mark.parametrize("slots", [0, 1, 20])
def test_it_holds_the_same_if_its_node_sells_other_slots_or_none(slots: int) -> None:
    there = bound(pod(mps=1), MPS_NODE, ((0,),))
    assert pod_gpus.read(there, facts(8, 12, slots=slots)) == ((0, 2, 1),)


def test_it_holds_the_same_if_its_node_counts_in_another_unit_or_pins_otherwise() -> None:
    before, share = facts(15360, 15360, slots=10), pod(mps=1, slot_memory="3000Mi")
    there = bound(share, before, ((1,),))
    assert pod_gpus.read(there, facts(15, 15, unit="GiB", slots=10)) == ((1, 3, 1),)
    assert pod_gpus.read(there, facts(15360, 15360, pin="plugin")) == ((1, 3000, 1),)
    gib = bound(share, facts(15, 15, unit="GiB", slots=10), ((1,),))
    assert pod_gpus.read(gib, before) == ((1, 3072, 1),)


def test_a_whole_gpu_of_a_pod_with_an_mps_share_stays_whole_if_its_gpu_becomes_larger() -> None:
    """The allocation has the size that the GPU had: less was kept back since, or a GiB is not cut off any more."""
    both = pod(whole=1, mps=1, slot_memory="3Gi")
    there = bound(both, facts(15000, 15000, slots=10), ((0,), (1,)))
    assert pod_gpus.read(there, facts(15360, 15360, slots=10)) == ((0, 15360, 0), (1, 3072, 1))
    gib = bound(both, facts(15, 15, unit="GiB", slots=10), ((0,), (1,)))
    assert pod_gpus.read(gib, facts(16000, 16000, slots=10)) == ((0, 16000, 0), (1, 3072, 1))


@pytest.mark.parametrize(
    ("memory", "before", "after", "left"),
    [
        ("1500Mi", facts(8, 8, unit="GiB", slots=4), facts(8192, 8192, slots=4), 8192 - 2048),
        (None, facts(8, 8, unit="GiB", slots=48), facts(8192, 8192, slots=48), 8192 - 1024),
        (None, facts(16000, 16000, slots=10), facts(12000, 12000, slots=10), 12000 - 1600),
        (None, facts(16000, 16000, slots=10), facts(16000, 16000, slots=40), 16000 - 1600),
    ],
)
def test_an_mps_share_whose_binding_is_under_way_counts_as_what_the_binding_writes(
    memory: str | None, before: NodeFacts, after: NodeFacts, left: int
) -> None:
    books, who = ledger(before), pod(mps=1, slot_memory=memory)
    places = books.reserve(who, "n", "binpack")
    books.set_node(after)
    assert free(books)[0] == left
    assert isinstance(places, tuple)
    books.confirm(bound(who, before, places))
    assert free(books)[0] == left


def test_an_mps_share_is_written_in_the_parts_of_the_node_that_it_is_bound_to() -> None:
    """It was assumed while the GPU was larger. What is written counts, not what was assumed."""
    books, who, smaller = ledger(facts(16000, slots=10)), pod(mps=1), facts(12000, slots=10)
    books.assume(who, "n", "binpack", 0.0)
    books.set_node(smaller)
    places = books.reserve(who, "n", "binpack")
    books.set_node(facts(11000, slots=10))
    assert free(books) == [11000 - 1200]
    assert isinstance(places, tuple)
    books.confirm(bound(who, smaller, places))
    assert free(books) == [11000 - 1200]


def test_an_init_container_with_a_slot_is_charged_what_it_needs_beyond_the_others() -> None:
    inits, apps = [container("i", mps=1), container("s", mps=1, sidecar=True)], [container("a", 3)]
    there = bound(pod(containers=apps, inits=inits, slot_memory="2Mi"), MPS_NODE, ((0,), (1,), (0,)))
    assert pod_gpus.read(there, MPS_NODE) == ((0, 3, 1), (1, 2, 1))
    alone = bound(pod(containers=apps, inits=inits, slot_memory="5Mi"), MPS_NODE, ((0,), (0,), (0,)))
    assert pod_gpus.read(alone, MPS_NODE) == ((0, 8, 1),)


@pytest.mark.parametrize(
    "allocation",
    ["", "{", '{"0":{"0":3}}', '{"0":{"0":3},"1":{"0":0}}', '{"0":{"0":2},"1":{"0":2}}', '{"0":{"0":3},"1":{"1":2}}',
     '{"0":{"0":3},"1":{"0":-2}}'],
)  # fmt: skip
def test_an_allocation_that_does_not_match_means_that_it_may_hold_all_of_every_gpu(allocation: str) -> None:
    there = bound(pod(3, mps=1), MPS_NODE, ((0,), (0,)))
    notes = dict(there.annotations) | {names.ALLOCATION: allocation}
    seen = request.facts(api_pod(3, mps=1, name="p", on="n", notes=notes), None)
    assert pod_gpus.read(seen, MPS_NODE) is None
    made = ledger(MPS_NODE)
    made.observe(seen, 0.0)
    assert free(made) == [0, 0]
