"""Annotations are written for every reader there is, and read from every writer, and never trusted with amounts."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpushare.core.annotations import pod_gpus
from gpushare.core.facts import names
from gpushare.core.facts.model import Charges, NodeFacts, Pin, PodFacts, Request, Role
from gpushare.core.placement import gpu_choice
from tests.core import strategies
from tests.support.builders import asks, bound, facts, pod

SERVED = (Pin.DIRECT, Pin.PLUGIN)


def noted(*memory: int, where: NodeFacts, **notes: str) -> Charges | None:
    keys = {"idx": names.ALIYUN_IDX, "allocation": names.ALLOCATION}
    return pod_gpus.read(pod(*memory, direct=False, on=where.name, notes={keys[k]: v for k, v in notes.items()}), where)


@given(st.data(), strategies.POLICIES)
@settings(max_examples=400)
def test_what_is_written_is_read_back_for_any_plan(data: st.DataObject, policy: str) -> None:
    room = data.draw(strategies.rooms(pins=SERVED))
    request = data.draw(strategies.api_requests(pin=room.facts.pin))
    places = gpu_choice.plan(request, room, policy)
    if places is not None:
        seen = bound(PodFacts("u", "default", "p", request), room.facts, places)
        assert pod_gpus.read(seen, room.facts) == gpu_choice.charges(request.shares, room.facts, places)


def test_what_is_written_for_a_node_of_aliyuns_plugin_is_read_back() -> None:
    where = facts(15, 15, pin="aliyun")
    seen = bound(pod(4, direct=False), where, ((1,),))
    assert pod_gpus.read(seen, where) == ((1, 4, 0),)


@given(st.data(), strategies.POLICIES)
def test_annotations_choose_gpus_and_never_amounts(data: st.DataObject, policy: str) -> None:
    """Whatever of a valid set of annotations is lost, what is read is all that the spec asks, or nothing."""
    room = data.draw(strategies.rooms(pins=SERVED))
    request = data.draw(strategies.api_requests(pin=room.facts.pin))
    places = gpu_choice.plan(request, room, policy)
    if places is not None:
        seen = bound(PodFacts("u", "default", "p", request), room.facts, places)
        kept = data.draw(st.sets(st.sampled_from([key for key, _ in seen.annotations])))
        less = msgspec.structs.replace(seen, annotations=tuple(note for note in seen.annotations if note[0] in kept))
        charges = pod_gpus.read(less, room.facts)
        stays = [share for share in request.shares if share.role is not Role.INIT]
        assert charges is None or sum(charge.units for charge in charges) >= sum(share.units for share in stays)
        assert charges is None or sum(charge.slots for charge in charges) >= sum(s.kind.slots * s.gpus for s in stays)
        if any(share.kind.slots for share in request.shares) and names.ALLOCATION not in kept:
            assert not charges, "what an MPS share holds is written nowhere else"


def test_a_binding_carries_aliyuns_annotations_and_ours() -> None:
    where = facts(8000, 9000, name="a", indices=[3, 5])
    notes = pod_gpus.write(asks(4000, 6000), where, ((0,), (1,)), extender="0a1b2c3d", nanoseconds=17)
    assert notes == {
        names.ALIYUN_IDX: "3", names.ALIYUN_POD: "10000", names.ALIYUN_DEV: "8000", names.ALIYUN_ASSIGNED: "false",
        names.ALIYUN_ASSUME_TIME: "17", names.ALLOCATION: '{"0":{"3":4000},"1":{"5":6000}}', names.EXTENDER: "0a1b2c3d",
        "gpushare.io/visible-0": "GPU-a-0", "gpushare.io/visible-1": "GPU-a-1",
    }  # fmt: skip


def test_what_init_containers_hold_beyond_the_others_stands_under_the_largest() -> None:
    request, where = asks(4000, init=[6000, 5000], direct=False), facts(8000, pin="plugin")
    assert pod_gpus.allocation(request.shares, where, ((0,), (0,), (0,))) == {"0": {"0": 4000}, "1": {"0": 2000}}


def test_init_containers_that_hold_nothing_more_are_left_out() -> None:
    request, where = asks(7000, init=[6000], direct=False), facts(8000, pin="plugin")
    assert pod_gpus.allocation(request.shares, where, ((0,), (0,))) == {"0": {"0": 7000}}


@pytest.mark.parametrize("pin", ["aliyun", "plugin", "direct"])
def test_aliyuns_index_alone_puts_all_containers_there(pin: str) -> None:
    where = facts(8000, 8000, pin=pin)
    assert noted(3000, 2000, where=where, idx="1") == ((1, 5000, 0),)


@pytest.mark.parametrize("idx", ["2", "-1", "", "one", "0x1", "99999999999", "１"])
def test_an_index_that_names_no_gpu_means_nothing(idx: str) -> None:
    assert noted(3000, where=facts(8000, 8000, pin="plugin"), idx=idx) is None


@pytest.mark.parametrize(
    "allocation",
    [
        "",
        "{",
        "[]",
        "null",
        '{"0":3000}',
        '{"0":{"1":2999}}',
        '{"0":{"7":3000}}',
        '{"1":{"1":3000}}',
        "{}",
        '{"0":{"1":1500,"0":1501}}',
        '{"0":{"1":3000},"4":{"0":1}}',
        '{"0":{"1":-3000}}',
        '{"0":{"1":"3000"}}',
        "[" * 9999,
    ],
)
def test_an_allocation_that_does_not_match_the_spec_means_nothing(allocation: str) -> None:
    assert noted(3000, where=facts(8000, 8000, pin="plugin"), allocation=allocation) is None


def test_annotations_that_contradict_each_other_mean_nothing() -> None:
    where = facts(8000, 8000, pin="plugin")
    assert noted(3000, where=where, allocation='{"0":{"1":3000}}', idx="1") == ((1, 3000, 0),)
    assert noted(3000, where=where, allocation='{"0":{"1":3000}}', idx="0") is None


def test_a_directly_pinned_pod_is_where_its_uuids_say_even_if_indices_shift() -> None:
    before = facts(8000, 8000, uuids=["A", "B"])
    seen = bound(pod(3000), before, ((1,),))
    assert pod_gpus.read(seen, facts(8000, uuids=["B"])) == ((0, 3000, 0),)
    assert pod_gpus.read(seen, facts(8000, uuids=["C"])) is None


def test_a_whole_gpu_is_as_large_as_it_is_now() -> None:
    seen = bound(pod(whole=1, direct=False), facts(8000, 8000, pin="plugin"), ((1,),))
    assert pod_gpus.read(seen, facts(8000, 7000, pin="plugin")) == ((1, 7000, 0),)


@given(st.text())
def test_garbage_in_annotations_of_pods_never_raises(text: str) -> None:
    keys = (names.ALIYUN_IDX, names.ALLOCATION, "gpushare.io/visible-0")
    for where in (facts(8000), facts(8000, pin="plugin")):
        pod_gpus.read(pod(5, on="n", notes=dict.fromkeys(keys, text)), where)


def test_a_request_without_a_claim_has_no_place() -> None:
    seen = pod(containers=[], on="n")
    assert not isinstance(seen.request, Request)
    assert pod_gpus.read(seen, facts(8000)) is None
