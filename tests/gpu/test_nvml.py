"""GPUs are read through the real binding, as they are now; what fails is said of the GPU that fails."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from gpushare.gpu.device import Backend, Device, Versions, Xid
from gpushare.gpu.nvml import RENEW_SECONDS, RENEW_SOON_SECONDS, Nvml
from gpushare.gpu.session import NO_MEMORY_SIZE
from gpushare.obs.errors import UserError
from tests.gpu.conftest import event_sets, is_initialised
from tests.support.nvml.state import MIB, Mock, card, uuid

GPU_IS_LOST, UNKNOWN = 15, 999


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def gpus(mock: Mock, clock: Clock) -> AsyncIterator[Nvml]:
    made = Nvml(wait=0.02, clock=clock)
    yield made
    await made.close()


async def test_everything_there_is_to_know_of_a_gpu_is_read(gpus: Backend) -> None:
    assert await gpus.devices() == [
        Device(0, uuid(0), 0, "00000000:10:00.0", "Tesla T4", 16276, "7.5", mig_capable=True),
        Device(1, uuid(1), 1, "00000000:11:00.0", "Tesla T4", 40536, "7.5", mig_capable=True),
    ]
    assert gpus.notes == ()


async def test_the_versions_of_the_driver_are_read(gpus: Nvml, mock: Mock) -> None:
    assert await gpus.versions() == Versions("550.54.14", "12.4")
    mock.show(card(0), rules=("fail=nvmlSystemGetCudaDriverVersion_v2 3", "fail=nvmlSystemGetDriverVersion 3"))
    assert await gpus.versions() == Versions("", "")


async def test_asking_again_changes_nothing(gpus: Backend) -> None:
    assert await gpus.devices() == await gpus.devices()
    assert gpus.notes == ()


@pytest.mark.parametrize(
    ("total", "mib"),
    [(16276 * MIB, 16276), (16276 * MIB + MIB - 1, 16276), (16276 * MIB - 1, 16275), (15843721216, 15109)],
)
async def test_memory_is_rounded_down_as_the_original_does(gpus: Nvml, mock: Mock, total: int, mib: int) -> None:
    mock.show(f"gpu=a\nmemory={total}")
    assert [device.memory_mib for device in await gpus.devices()] == [mib]


async def test_what_a_gpu_does_not_know_is_a_value_and_no_failure(gpus: Nvml, mock: Mock) -> None:
    mock.show(f"gpu=a\nmemory={8 * MIB}")
    assert await gpus.devices() == [Device(0, "a", None, "", "Mock GPU", 8, "")]


async def test_a_gpu_that_does_not_say_its_memory_cannot_be_shared(gpus: Nvml, mock: Mock) -> None:
    mock.show("gpu=a", card(1))
    assert [device.fault for device in await gpus.devices()] == [NO_MEMORY_SIZE, ""]


async def test_mig_is_seen_while_it_is_switched_on_and_off(gpus: Nvml, mock: Mock) -> None:
    seen = []
    for mode in ("mig=0", "mig=1", "mig=0"):
        mock.show(card(0, 40536, mode))
        seen += [device.mig for device in await gpus.devices()]
    assert seen == [False, True, False]


async def test_mig_that_begins_with_the_next_reset_has_not_begun(gpus: Nvml, mock: Mock) -> None:
    mock.show(card(0, 40536, "mig=0 1"), card(1, 40536, "mig=1 0"))
    assert [device.mig for device in await gpus.devices()] == [False, True]


@pytest.mark.parametrize(
    ("action", "fault"),
    [
        (0, ""),
        (1, "the driver asks for a GPU reset"),
        (2, "the driver asks for a reboot of the node"),
        (99, "the driver asks for recovery action 99"),
    ],
)
async def test_a_gpu_for_which_the_driver_asks_something_is_faulty(
    gpus: Nvml, mock: Mock, action: int, fault: str
) -> None:
    mock.show(card(0, 16276, f"action={action}"))
    assert [(device.fault, device.memory_mib) for device in await gpus.devices()] == [(fault, 16276)]


# --- GPUs that fail, go and come


async def test_a_gpu_whose_name_is_rubbish_is_faulty(gpus: Nvml, mock: Mock) -> None:
    mock.show("gpu=\udcff", card(1, 40536, "name=\udcff"))
    assert [(device.index, bool(device.fault)) for device in await gpus.devices()] == [(1, True)]
    assert len(gpus.notes) == 1


async def test_a_gpu_that_fails_keeps_what_was_read_of_it(gpus: Nvml, mock: Mock) -> None:
    first, second = await gpus.devices()
    mock.show(card(0), card(1, 40536, f"fail=nvmlDeviceGetMemoryInfo {GPU_IS_LOST}"))
    still, faulty = await gpus.devices()
    assert still == first
    assert (faulty.fault, faulty.memory_mib, faulty.name) == ("GPU is lost", second.memory_mib, second.name)


async def test_a_gpu_that_fails_stands_where_it_is_now(gpus: Nvml, mock: Mock, clock: Clock) -> None:
    await gpus.devices()
    mock.show(card(1, 40536, f"fail=nvmlDeviceGetMemoryInfo {GPU_IS_LOST}"), card(0))
    clock.now += RENEW_SECONDS
    assert [(device.index, device.memory_mib) for device in await gpus.devices()] == [(0, 40536), (1, 16276)]


async def test_a_gpu_that_never_could_be_read_is_named(gpus: Nvml, mock: Mock) -> None:
    mock.show(card(0, 16276, "lost=1"), card(1, 40536, f"fail=nvmlDeviceGetName {UNKNOWN}"))
    assert [(device.index, device.fault) for device in await gpus.devices()] == [(1, "Unknown Error")]
    assert gpus.notes == ("GPU 0 cannot be read: GPU is lost",)


async def test_a_gpu_that_is_listed_twice_is_one_gpu(gpus: Nvml, mock: Mock) -> None:
    mock.show(card(0), card(1, 40536), card(0))
    assert [device.uuid for device in await gpus.devices()] == [uuid(0), uuid(1)]
    assert gpus.notes == ("GPU 2 cannot be read: it has the uuid of another GPU",)
    assert [sample.uuid for sample in (await gpus.sample()).gpus] == [uuid(0), uuid(1)]


async def test_a_lost_gpu_is_missing_and_the_others_stay(gpus: Nvml, mock: Mock) -> None:
    await gpus.devices()
    mock.show(card(0, 16276, "lost=1"), card(1, 40536))
    assert [device.uuid for device in await gpus.devices()] == [uuid(1)]
    assert gpus.notes == ("GPU 0 cannot be read: GPU is lost",)


async def test_a_gpu_that_fell_off_is_looked_for_again_soon(gpus: Nvml, mock: Mock, clock: Clock) -> None:
    await gpus.devices()
    mock.show(card(1, 40536))
    assert [(device.index, device.uuid) for device in await gpus.devices()] == [(1, uuid(1))]
    clock.now += RENEW_SOON_SECONDS
    assert [(device.index, device.uuid) for device in await gpus.devices()] == [(0, uuid(1))]  # counted anew
    assert gpus.notes == ()


async def test_a_gpu_that_was_added_is_found_in_time(gpus: Nvml, mock: Mock, clock: Clock) -> None:
    await gpus.devices()
    mock.show(card(0), card(1, 40536), card(2, 8192))
    clock.now += RENEW_SECONDS - 1
    assert len(await gpus.devices()) == 2
    clock.now += 1
    assert [device.memory_mib for device in await gpus.devices()] == [16276, 40536, 8192]


async def test_gpus_are_not_counted_anew_with_every_question(gpus: Nvml, mock: Mock, clock: Clock) -> None:
    clock.now = 1000
    await gpus.devices()
    for _ in range(2):
        clock.now += RENEW_SECONDS
        await gpus.devices()
        mock.show(card(0), card(1, 40536), card(2, 8192))
        assert len(await gpus.devices()) == 2
        mock.show(card(0), card(1, 40536))


# --- what the driver reports


async def test_an_error_is_reported_with_its_gpu(gpus: Backend, mock: Mock) -> None:
    await gpus.devices()
    mock.xid(79, number=1)
    assert await gpus.xids() == [Xid(uuid(1), 79)]
    assert await gpus.xids() == []


async def test_an_error_of_no_particular_gpu_has_none(gpus: Nvml, mock: Mock) -> None:
    await gpus.devices()
    mock.xid(154)
    assert await gpus.xids() == [Xid(None, 154)]


async def test_many_errors_at_once_all_arrive(gpus: Nvml, mock: Mock) -> None:
    await gpus.devices()
    for code in range(200):
        mock.xid(code, number=0)
    heard: list[Xid] = []
    while news := await gpus.xids():
        heard += news
    assert heard == [Xid(uuid(0), code) for code in range(200)]


async def test_errors_are_heard_before_anybody_asked_for_devices(gpus: Nvml, mock: Mock) -> None:
    assert await gpus.xids() == []
    mock.xid(48, number=0)
    assert await gpus.xids() == [Xid(uuid(0), 48)]


async def test_an_error_is_not_lost_when_gpus_are_counted_anew(gpus: Nvml, mock: Mock, clock: Clock) -> None:
    await gpus.devices()
    mock.xid(48, number=0)
    clock.now += RENEW_SECONDS
    await gpus.devices()
    mock.xid(79, number=0)
    assert await gpus.xids() == [Xid(uuid(0), 48)]
    assert await gpus.xids() == [Xid(uuid(0), 79)]


async def test_an_error_is_heard_at_once_however_long_the_wait(mock: Mock) -> None:
    gpus = Nvml(wait=60, limit=10)
    await gpus.devices()
    mock.xid(48, number=0)
    assert await gpus.xids() == [Xid(uuid(0), 48)]
    await gpus.close()


async def test_errors_are_heard_of_gpus_that_came_later(gpus: Nvml, mock: Mock, clock: Clock) -> None:
    await gpus.devices()
    mock.show(card(7), card(0), card(1))
    clock.now += RENEW_SECONDS
    await gpus.devices()
    mock.xid(79, number=7)
    mock.xid(79, number=1)
    assert await gpus.xids() == [Xid(uuid(7), 79), Xid(uuid(1), 79)]


@pytest.mark.parametrize(
    ("trouble", "note"),
    [
        ("deaf=1", "it has no such reports"),
        ("fail=nvmlDeviceRegisterEvents 3", "Not Supported"),
        ("fail=nvmlDeviceRegisterEvents 999", "Unknown Error"),
    ],
)
async def test_a_gpu_that_reports_nothing_is_still_shared(gpus: Nvml, mock: Mock, trouble: str, note: str) -> None:
    mock.show(card(0, 16276, trouble), card(1))
    assert [device.fault for device in await gpus.devices()] == ["", ""]
    assert gpus.notes == (f"GPU 0 does not report its errors: {note}",)
    mock.xid(79, number=0)
    mock.xid(79, number=1)
    assert await gpus.xids() == [Xid(uuid(1), 79)]


async def test_a_gpu_that_reported_nothing_is_asked_to_when_gpus_are_counted_anew(
    gpus: Nvml, mock: Mock, clock: Clock
) -> None:
    mock.show(card(0, 16276, "deaf=1"))
    await gpus.devices()
    mock.show(card(0))
    clock.now += RENEW_SECONDS
    await gpus.devices()
    assert gpus.notes == ()


@pytest.mark.parametrize("what", ["lost=1", "deaf=1"])
async def test_there_is_a_pause_where_the_driver_would_answer_at_once(
    gpus: Nvml, mock: Mock, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mock.show(card(0, 16276, what) if what == "deaf=1" else card(0))
    await gpus.devices()
    mock.show(card(0, 16276, what))
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    assert await gpus.xids() == []
    assert pauses == [0.02]


async def test_an_error_reported_before_a_gpu_was_lost_is_heard(gpus: Nvml, mock: Mock) -> None:
    await gpus.devices()
    mock.xid(79, number=0)
    mock.show(card(0, 16276, "lost=1"), card(1))
    assert await gpus.xids() == [Xid(uuid(0), 79)]


async def test_devices_and_errors_can_be_asked_for_at_the_same_time(gpus: Nvml, mock: Mock) -> None:
    await gpus.devices()
    mock.xid(48, number=0)
    answers = await asyncio.gather(gpus.xids(), gpus.devices(), gpus.xids(), gpus.devices())
    assert [len(answer) for answer in answers] == [1, 2, 0, 2]
    await gpus.close()
    assert not is_initialised()  # there was one conversation only


# --- the driver as a whole


async def test_no_gpu_is_said_with_what_may_hide_them(gpus: Nvml, mock: Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    mock.show()
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", "none")
    with pytest.raises(UserError) as raised:
        await gpus.devices()
    assert (raised.value.what, raised.value.why, raised.value.way) == (
        "the driver works but shows no GPU",
        'NVML 550.54.14 lists 0 devices; NVIDIA_VISIBLE_DEVICES is "none"',
        "NVIDIA_VISIBLE_DEVICES=all, or remove label gpushare=true if the node has no GPU",
    )
    monkeypatch.delenv("NVIDIA_VISIBLE_DEVICES")
    with pytest.raises(UserError, match="NVIDIA_VISIBLE_DEVICES is not set"):
        await gpus.devices()


async def test_gpus_that_appear_where_there_were_none_are_found_at_once(gpus: Nvml, mock: Mock) -> None:
    mock.show()
    with pytest.raises(UserError):
        await gpus.devices()
    mock.show(card(0))
    assert [device.uuid for device in await gpus.devices()] == [uuid(0)]


async def test_gpus_of_which_none_can_be_read_are_an_error(gpus: Nvml, mock: Mock) -> None:
    mock.show(card(0, 16276, "lost=1"), card(1, 16276, "lost=1"))
    with pytest.raises(UserError) as raised:
        await gpus.devices()
    assert raised.value.what == "none of the 2 GPUs can be read"
    assert raised.value.why == "GPU 0 cannot be read: GPU is lost; GPU 1 cannot be read: GPU is lost"


@pytest.mark.parametrize(
    ("code", "what", "why"),
    [
        (9, "the NVIDIA driver is not loaded", "nvmlInitWithFlags: Driver Not Loaded"),
        (18, "the NVIDIA driver and its library are of different versions", "nvmlInitWithFlags: RM has detected"),
        (4, "the NVIDIA driver refuses this container", "nvmlInitWithFlags: Insufficient Permissions"),
        (999, "the NVIDIA driver fails", "nvmlInitWithFlags: Unknown Error"),
        (77, "the NVIDIA driver fails", "nvmlInitWithFlags: mock error 77"),
    ],
)
async def test_a_driver_that_does_not_start_is_said_in_words(
    gpus: Nvml, mock: Mock, code: int, what: str, why: str
) -> None:
    mock.show(card(0), rules=(f"fail=nvmlInitWithFlags {code}",))
    for ask in (gpus.devices, gpus.xids):
        with pytest.raises(UserError) as raised:
            await ask()
        assert raised.value.what == what
        assert raised.value.why.startswith(why)
        assert raised.value.way
    mock.show(card(0))
    assert len(await gpus.devices()) == 1


@pytest.mark.parametrize(
    "function", ["nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetMemoryInfo"]
)
@pytest.mark.parametrize("code", [1, 9, 18])
async def test_a_driver_that_goes_away_is_an_error_until_it_is_back(
    gpus: Nvml, mock: Mock, function: str, code: int
) -> None:
    before = await gpus.devices()
    mock.show(card(0), card(1, 40536), rules=(f"fail={function} {code}",))
    for _ in range(2):
        with pytest.raises(UserError, match=function.removesuffix("_v2")):
            await gpus.devices()
        assert not is_initialised()
    mock.show(card(0), card(1, 40536))
    assert await gpus.devices() == before


async def test_errors_that_cannot_be_waited_for_are_said(gpus: Nvml, mock: Mock) -> None:
    await gpus.devices()
    mock.show(card(0), rules=(f"fail=nvmlEventSetWait_v2 {UNKNOWN}",))
    with pytest.raises(UserError, match="nvmlEventSetWait: Unknown Error"):
        await gpus.xids()


async def test_counting_anew_does_not_fail_because_errors_could_not_be_heard(
    gpus: Nvml, mock: Mock, clock: Clock
) -> None:
    await gpus.devices()
    mock.show(card(0), rules=(f"fail=nvmlEventSetWait_v2 {UNKNOWN}",))
    clock.now += RENEW_SECONDS
    assert len(await gpus.devices()) == 1


async def test_closing_lets_go_of_the_driver_and_asking_again_opens_it(gpus: Nvml) -> None:
    await gpus.devices()
    assert is_initialised()
    await gpus.close()
    await gpus.close()
    assert not is_initialised()
    assert event_sets() == 0
    assert len(await gpus.devices()) == 2
