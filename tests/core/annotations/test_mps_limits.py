"""A binding tells MPS clients what they may use, and everybody which GPUs the pod has."""

import pytest

from gpushare.core.annotations import pod_gpus
from gpushare.core.facts import names, request
from gpushare.core.facts.model import NodeFacts, Places, Request
from tests.support.builders import api_pod, asks, bound, container, env_of, facts, pod

LIMITS = {name: f"{names.MPS_LIMIT_PREFIX}{name}" for name in ("0", "1", "init-0")}


def written(asked: Request, where: NodeFacts, places: Places) -> dict[str, str]:
    """What stands in the annotations for MPS clients, and for KETI's tools."""
    notes = pod_gpus.write(asked, where, places, extender="0a1b2c3d", nanoseconds=1)
    return {key: value for key, value in notes.items() if key == names.UUID or key.startswith(names.MPS_LIMIT_PREFIX)}


def test_the_limit_is_the_memory_that_was_counted_by_ordinal() -> None:
    where = facts(8000, 8000, name="a", slots=4)
    assert written(asks(mps=1), where, ((1,),)) == {LIMITS["0"]: "0=2000M", names.UUID: "GPU-a-1"}
    sized = asks(mps=2, slot_memory="1500Mi")
    assert written(sized, where, ((1, 0),)) == {LIMITS["0"]: "0=1500M,1=1500M", names.UUID: "GPU-a-1,GPU-a-0"}


@pytest.mark.parametrize("places", [((0, 1),), ((1, 0),)])
def test_of_gpus_of_different_size_the_smallest_part_is_the_limit_on_all(places: Places) -> None:
    """Which of them CUDA calls 0 inside the container is not known here."""
    where = facts(16000, 8000, slots=4)
    assert written(asks(mps=2), where, places)[LIMITS["0"]] == "0=2000M,1=2000M"


@pytest.mark.parametrize(("slot_memory", "limit"), [("1536Mi", "0=2048M"), ("3G", "0=3072M"), (None, "0=4096M")])
def test_on_nodes_that_count_gib_the_limit_is_what_was_counted_in_mib(slot_memory: str | None, limit: str) -> None:
    assert written(asks(mps=1, slot_memory=slot_memory), facts(16, unit="GiB", slots=4), ((0,),))[LIMITS["0"]] == limit


def test_bytes_are_rounded_up_to_what_was_counted() -> None:
    assert written(asks(mps=1, slot_memory="100M"), facts(8000, slots=4), ((0,),))[LIMITS["0"]] == "0=96M"


def test_each_container_has_its_own_limits_and_the_pod_names_each_gpu_once() -> None:
    apps = [container("a", mps=1), container("b", mps=2), container("plain"), container("memory", 500)]
    seen = pod(containers=apps, inits=[container("first", mps=1)], slot_memory="1Mi")
    assert isinstance(seen.request, Request)
    where = facts(8000, 8000, 8000, name="n", slots=4)
    assert written(seen.request, where, ((2,), (1,), (1, 0), (0,))) == {
        names.UUID: "GPU-n-1,GPU-n-0,GPU-n-2",  # app containers come first, as in all annotations
        LIMITS["0"]: "0=1M",
        LIMITS["1"]: "0=1M,1=1M",
        LIMITS["init-0"]: "0=1M",
    }


def test_pods_without_mps_shares_get_nothing_of_this() -> None:
    assert written(asks(1000), facts(8000, slots=4), ((0,),)) == {}
    assert written(asks(whole=1), facts(8000), ((0,),)) == {}


@pytest.mark.parametrize(
    "limit",
    [None, "gpushare.io/mps-limit-7", "gpushare.io/mps-limit-", "example.com/mps-limit-0", "gpushare.io/visible-0"],
)
def test_who_was_admitted_without_the_env_or_wrote_another_is_bound_without_limits(limit: str | None) -> None:
    """An env that points elsewhere must not make us write a foreign annotation."""
    one = container("main", mps=1, visible=f"{names.VISIBLE_PREFIX}0")
    if limit is not None:
        assert one.env is not None
        one.env.insert(0, env_of(limit, names.MPS_LIMIT))
    asked = asks(containers=[one], direct=False)
    assert written(asked, facts(8000, name="a", slots=4), ((0,),)) == {names.UUID: "GPU-a-0"}


def test_of_several_entries_the_last_counts_and_a_value_by_hand_is_none() -> None:
    one = container("main", mps=1, visible=f"{names.VISIBLE_PREFIX}0")
    assert one.env is not None
    by_hand = env_of("", names.MPS_LIMIT)
    by_hand.value_from = None
    one.env[:0] = [env_of(LIMITS["0"], names.MPS_LIMIT), by_hand]
    (share,) = asks(containers=[one], direct=False).shares
    assert not share.limited


def test_what_a_pod_holds_is_read_back_without_them_and_they_are_not_kept_in_memory() -> None:
    where = facts(8000, 8000, slots=4)
    seen = bound(pod(mps=2), where, ((0, 1),))
    assert pod_gpus.read(seen, where) == ((0, 2000, 1), (1, 2000, 1))
    assert {key for key, _ in seen.annotations}.isdisjoint({names.UUID, LIMITS["0"]})
    bad = api_pod(mps=2, on="n", notes=dict(seen.annotations) | {names.UUID: "GPU-x", LIMITS["0"]: "garbage"})
    assert pod_gpus.read(request.facts(bad, None), where) == ((0, 2000, 1), (1, 2000, 1))
