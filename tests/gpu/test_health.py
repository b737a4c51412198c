"""A GPU becomes unhealthy at once, says why, and is healthy again after a minute without a problem."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpushare.gpu.device import Device, Xid
from gpushare.gpu.health import LOST, MIG_ENABLED, OF_THE_APPLICATION, RECOVERY_SECONDS, Health
from gpushare.gpu.simulated import device

A, B = device(0, "a", 16276), device(1, "b", 40536)
HANGS = "the NVIDIA driver does not answer"
FAULTY = msgspec.structs.replace(A, fault="GPU is lost")
WITH_MIG = msgspec.structs.replace(A, mig=True)


@pytest.fixture
def health() -> Health:
    made = Health()
    made.see([A, B], 0)
    return made


def test_gpus_that_the_driver_shows_are_healthy(health: Health) -> None:
    assert health.unhealthy() == {}


@pytest.mark.parametrize(("seen", "why"), [([B], LOST), ([FAULTY, B], "GPU is lost"), ([WITH_MIG, B], MIG_ENABLED)])
def test_a_gpu_that_cannot_be_used_is_unhealthy_at_once_and_says_why(
    health: Health, seen: list[Device], why: str
) -> None:
    health.see(seen, 10)
    assert health.unhealthy() == {"a": why}


def test_a_lost_gpu_stays_known_for_ever(health: Health) -> None:
    for minute in range(1, 1000):
        health.see([B], minute * 60)
    assert health.unhealthy() == {"a": LOST}


def test_gpus_that_nobody_can_ask_about_are_all_unhealthy(health: Health) -> None:
    health.unseen(HANGS, 10)
    assert health.unhealthy() == {"a": HANGS, "b": HANGS}


@pytest.mark.parametrize("code", sorted(OF_THE_APPLICATION))
def test_what_an_application_did_wrong_is_not_the_fault_of_its_gpu(health: Health, code: int) -> None:
    health.xid(Xid("a", code), 10)
    health.xid(Xid(None, code), 10)
    assert health.unhealthy() == {}


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (79, "Xid 79: GPU has fallen off the bus"),
        (48, "Xid 48: double bit ECC error"),
        (95, "Xid 95: uncontained memory error"),
        (12, "Xid 12"),
    ],
)
def test_another_error_makes_its_gpu_unhealthy(health: Health, code: int, why: str) -> None:
    health.xid(Xid("a", code), 10)
    assert health.unhealthy() == {"a": why}


def test_an_error_of_no_particular_gpu_makes_all_unhealthy(health: Health) -> None:
    health.xid(Xid(None, 79), 10)
    assert health.unhealthy().keys() == {"a", "b"}


def test_an_error_and_what_came_of_it_are_both_said(health: Health) -> None:
    health.xid(Xid("a", 79), 10)
    health.see([B], 11)
    assert health.unhealthy() == {"a": f"Xid 79: GPU has fallen off the bus; {LOST}"}


def test_an_error_heard_before_the_gpu_was_seen_counts_when_it_is() -> None:
    health = Health()
    health.xid(Xid("a", 79), 0)
    assert health.unhealthy() == {}
    health.see([A], 1)
    assert health.unhealthy().keys() == {"a"}


def test_which_errors_count_can_be_said_otherwise() -> None:
    health = Health(counts=lambda xid: xid == 13)
    health.see([device(0, "GPU-0", 1), device(1, "GPU-1", 1)], 0.0)
    health.xid(Xid("GPU-0", 13), 1.0)
    health.xid(Xid("GPU-1", 79), 1.0)
    assert health.unhealthy() == {"GPU-0": "Xid 13"}


def test_a_gpu_with_mig_enabled_is_healthy_where_it_can_be_given_out() -> None:
    health = Health(mig=True)
    health.see([msgspec.structs.replace(device(0, "GPU-0", 1), mig=True)], 0.0)
    assert health.unhealthy() == {}


def test_a_gpu_is_healthy_again_after_a_minute_without_a_problem_and_not_before(health: Health) -> None:
    health.xid(Xid("a", 79), 10)
    health.see([A, B], 10 + RECOVERY_SECONDS - 1)
    assert health.unhealthy().keys() == {"a"}
    health.see([A, B], 10 + RECOVERY_SECONDS)
    assert health.unhealthy() == {}


def test_a_gpu_that_comes_and_goes_stays_unhealthy(health: Health) -> None:
    for now in range(0, 600, 20):
        health.see([A, B] if now % 40 else [B], now)
    assert health.unhealthy() == {"a": LOST}


def test_a_gpu_that_recovered_forgets_why_it_was_unhealthy(health: Health) -> None:
    health.xid(Xid("a", 79), 0)
    health.see([A, B], RECOVERY_SECONDS)
    health.see([B], RECOVERY_SECONDS + 1)
    assert health.unhealthy() == {"a": LOST}


# What may happen: GPUs are seen (by uuid, whether healthy), nothing can be seen, or an error is reported.
What = dict[str, bool] | Xid | None
Story = list[tuple[float, What]]

uuids = st.sampled_from(["a", "b"])
xids = st.builds(Xid, st.none() | uuids, st.sampled_from([13, 48, 79, 109]))
happenings = st.dictionaries(uuids, st.booleans()) | st.none() | xids
pauses = st.sampled_from([0.5, 1.0, 30.0, 60.0])


def says(what: What, uuid: str, known: bool) -> bool | None:
    """Whether this says that the GPU is healthy (True) or unhealthy (False), or nothing of it."""
    if isinstance(what, Xid):
        concerned = what.uuid == uuid or (what.uuid is None and known)
        return False if concerned and what.code not in OF_THE_APPLICATION else None
    seen = (what or {}).get(uuid, False)
    return seen if known or uuid in (what or {}) else None


def is_unhealthy(uuid: str, story: Story) -> bool:
    """Whether it was ever unhealthy, and never seen healthy a minute or more after the last time."""
    known = [now for now, what in story if isinstance(what, dict) and uuid in what]
    said = [(now, says(what, uuid, bool(known) and now >= known[0])) for now, what in story]
    bad = [now for now, healthy in said if healthy is False]
    recovered = [now for now, healthy in said if healthy and bad and now - bad[-1] >= RECOVERY_SECONDS]
    return bool(known) and bool(bad) and not recovered


@given(st.lists(st.tuples(pauses, happenings), max_size=30))
def test_a_gpu_is_unhealthy_unless_it_was_without_a_problem_for_a_minute(happens: Story) -> None:
    health, now = Health(), 0.0
    told: Story = []
    for pause, what in happens:
        now += pause
        told.append((now, what))
        if isinstance(what, Xid):
            health.xid(what, now)
        elif what is None:
            health.unseen(HANGS, now)
        else:
            health.see([msgspec.structs.replace(A, uuid=u, fault="" if w else "bad") for u, w in what.items()], now)
        unhealthy = health.unhealthy()
        assert unhealthy.keys() == {uuid for uuid in "ab" if is_unhealthy(uuid, told)}
        assert all(unhealthy.values())
