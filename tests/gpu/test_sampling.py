"""What GPUs do is read through the real binding, as it is now; what a GPU does not tell is unknown, never 0."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pynvml  # type: ignore[import-untyped]
import pytest

from gpushare.gpu import nvml
from gpushare.gpu.nvml import Nvml
from gpushare.gpu.sample import Pass, Process, Sample
from gpushare.gpu.sampling import Sampling
from gpushare.obs.errors import UserError
from tests.gpu.conftest import come_back
from tests.support.nvml.state import DRIVER, MIB, Mock, card, figures, process, using, uuid

NOT_SUPPORTED, NO_PERMISSION, NO_FUNCTION, GPU_IS_LOST, RESET_REQUIRED, UNKNOWN = 3, 4, 13, 15, 16, 999
TOTAL = 16276 * MIB
NEW_SM, OLD_SM = "nvmlDeviceGetProcessesUtilizationInfo", "nvmlDeviceGetProcessUtilization"
LISTS = [f"nvmlDeviceGet{kind}RunningProcesses" for kind in ("Compute", "Graphics", "MPSCompute")]


@pytest.fixture
async def gpus(mock: Mock) -> AsyncIterator[Nvml]:
    made = Nvml(wait=0.02)
    yield made
    await made.close()


async def only(gpus: Nvml) -> Sample:
    (sample,) = (await gpus.sample()).gpus
    return sample


async def test_every_figure_is_read(gpus: Nvml, mock: Mock) -> None:
    told = figures(
        used=512 * MIB, reserved=300 * MIB, util="80 35", encoder=12, decoder=7, temp=61, memtemp=70, slowdown=90,
        power=68_000, powercap=70_000, energy=2**40, clock="1590 5001", replays=3, remapped="2 1 1",
    )  # fmt: skip
    mock.show(card(0, 16276, *told, process(4711, 512, 40)))
    assert await gpus.sample() == Pass(
        DRIVER,
        (
            Sample(
                uuid(0),
                0,
                memory_total=TOTAL,
                memory_used=512 * MIB,
                memory_free=TOTAL - 812 * MIB,
                memory_reserved=300 * MIB,
                gpu_util=80,
                memory_util=35,
                encoder_util=12,
                decoder_util=7,
                temperature=61,
                memory_temperature=70,
                temperature_limit=90,
                power=68_000,
                power_limit=70_000,
                energy=2**40,
                sm_clock=1590,
                memory_clock=5001,
                pcie_replays=3,
                correctable_remapped_rows=2,
                uncorrectable_remapped_rows=1,
                row_remap_failure=True,
                processes=(Process(4711, 512 * MIB, 40),),
            ),
        ),
    )


async def test_what_a_gpu_does_not_tell_is_unknown(gpus: Nvml, mock: Mock) -> None:
    mock.show(f"gpu={uuid(0)}")
    assert await only(gpus) == Sample(uuid(0), 0)


async def test_more_than_all_of_the_time_is_not_believed(gpus: Nvml, mock: Mock) -> None:
    mock.show(card(0, 16276, *figures(util="4294967295 101", encoder=400, decoder=100)))
    sample = await only(gpus)
    assert (sample.gpu_util, sample.memory_util, sample.encoder_util, sample.decoder_util) == (None, None, None, 100)


async def test_what_is_0_is_known(gpus: Nvml, mock: Mock) -> None:
    mock.show(card(0, 16276, *figures(temp=0, power=0, energy=0, clock="0 0")))
    sample = await only(gpus)
    fields = {field: getattr(sample, field) for field in sample.__struct_fields__}
    assert [field for field, value in fields.items() if value is None] == []


async def test_figures_that_change_are_in_the_next_pass(gpus: Nvml, mock: Mock) -> None:
    mock.show(using(0, 16276, process(1, 512, 10), util="10 5"))
    await gpus.sample()
    mock.show(using(0, 16276, process(2, 700, 90), util="95 50"))
    sample = await only(gpus)
    assert (sample.gpu_util, sample.memory_used, sample.processes) == (95, 700 * MIB, (Process(2, 700 * MIB, 90),))


async def test_memory_is_read_as_older_drivers_tell_it(gpus: Nvml, mock: Mock) -> None:
    mock.show(card(0, 16276, *figures(used=512 * MIB), f"fail=nvmlDeviceGetMemoryInfo_v2 {NO_FUNCTION}"))
    sample = await only(gpus)
    assert sample.memory_used == 812 * MIB  # with what the driver keeps for itself
    assert sample.memory_reserved is None
    assert sample.memory_free == TOTAL - 812 * MIB


async def test_the_temperature_is_read_as_newer_drivers_tell_it(gpus: Nvml, mock: Mock) -> None:
    mock.show(card(0, 16276, *figures(temp=61), f"fail=nvmlDeviceGetTemperature {NO_FUNCTION}"))
    assert (await only(gpus)).temperature == 61


async def test_a_gpu_that_tells_its_margin_only_has_a_temperature_limit(gpus: Nvml, mock: Mock) -> None:
    mock.show(card(0, 16276, *figures(temp=61, slowdown=None, margin=28)))
    assert (await only(gpus)).temperature_limit == 89
    mock.show(card(0, 16276, *figures(temp=None, slowdown=None, margin=28)))
    assert (await only(gpus)).temperature_limit is None


async def test_what_the_binding_does_not_have_is_unknown(
    gpus: Nvml, mock: Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    mock.show(using(0, 16276, process(1, 512, 40)))
    for missing in (NEW_SM, "nvmlDeviceGetRemappedRows", "nvmlDeviceGetTemperatureV", "nvmlDeviceGetMarginTemperature"):
        monkeypatch.delattr(pynvml, missing)
    sample = await only(gpus)
    assert sample.row_remap_failure is None
    assert sample.processes == (Process(1, 512 * MIB, 40),)


async def test_a_question_that_fails_leaves_one_figure_unknown(gpus: Nvml, mock: Mock) -> None:
    mock.show(card(0, 16276, *figures(util="80 35"), f"fail=nvmlDeviceGetPowerUsage {UNKNOWN}"))
    sample = await only(gpus)
    assert (sample.power, sample.gpu_util) == (None, 80)


@pytest.mark.parametrize(
    "broken",
    [
        "lost=1",
        f"fail=nvmlDeviceGetPowerUsage {GPU_IS_LOST}",
        f"fail=nvmlDeviceGetUtilizationRates {RESET_REQUIRED}",
        f"fail=nvmlDeviceGetMemoryInfo_v2 {UNKNOWN}\nfail=nvmlDeviceGetMemoryInfo {UNKNOWN}",
        f"fail=nvmlDeviceGetUUID {UNKNOWN}",
    ],
)
async def test_a_gpu_that_cannot_be_used_has_no_figures_and_the_others_have_theirs(
    gpus: Nvml, mock: Mock, broken: str
) -> None:
    mock.show(card(0, 16276, *figures(temp=50)), card(1, 16276, *figures(), broken), card(2, 16276, *figures(temp=60)))
    assert [(gpu.uuid, gpu.index, gpu.temperature) for gpu in (await gpus.sample()).gpus] == [
        (uuid(0), 0, 50),
        (uuid(2), 2, 60),
    ]


async def test_a_gpu_that_falls_off_between_two_passes_is_left_out(gpus: Nvml, mock: Mock) -> None:
    mock.show(card(0, 16276, *figures()), card(1, 16276, *figures()))
    assert len((await gpus.sample()).gpus) == 2
    mock.show(card(0, 16276, *figures()))
    assert [gpu.uuid for gpu in (await gpus.sample()).gpus] == [uuid(0)]


async def test_gpus_of_which_none_can_be_read_are_an_error(gpus: Nvml, mock: Mock) -> None:
    mock.show(card(0, 16276, "lost=1"))
    with pytest.raises(UserError, match="none of the 1 GPUs can be read"):
        await gpus.sample()


async def test_a_driver_without_gpus_is_an_error(gpus: Nvml, mock: Mock) -> None:
    mock.show()
    with pytest.raises(UserError, match="shows no GPU"):
        await gpus.sample()


@pytest.mark.parametrize("function", ["nvmlDeviceGetPowerUsage", "nvmlDeviceGetMemoryInfo_v2", NEW_SM])
async def test_a_fault_of_the_whole_driver_is_an_error(gpus: Nvml, mock: Mock, function: str) -> None:
    mock.show(using(0, 16276, process(1, 512, 40)), rules=(f"fail={function} 9",))
    with pytest.raises(UserError, match="the NVIDIA driver is not loaded"):
        await gpus.sample()
    mock.show(using(0, 16276))
    assert (await only(gpus)).processes == ()


@pytest.mark.parametrize("function", ["nvmlDeviceGetPowerUsage", "nvmlDeviceGetComputeRunningProcesses_v2"])
async def test_a_pass_that_hangs_is_given_up_and_the_next_one_is_taken(mock: Mock, function: str) -> None:
    mock.show(using(0, 16276), rules=(f"hang={function}",))
    gpus = Nvml(limit=0.1)
    with pytest.raises(UserError) as raised:
        await gpus.sample()
    assert raised.value.why == f"{function} has not come back for 0.1 s; that call is abandoned"
    mock.show(card(0, 16276, *figures(temp=77)))
    come_back()
    gpus._limit = 30.0  # this one may take its time on a busy machine
    assert (await only(gpus)).temperature == 77
    await gpus.close()


async def test_errors_are_reported_in_a_session_that_a_pass_has_opened(gpus: Nvml, mock: Mock) -> None:
    await gpus.sample()
    mock.xid(79, 1)
    assert [xid.uuid for xid in await gpus.xids()] == [uuid(1)]


async def test_a_process_in_several_lists_is_one_process(gpus: Nvml, mock: Mock) -> None:
    lines = [process(1, 512), process(2, None), process(1, 500, kind="graphics"), process(2, 80, kind="mps")]
    mock.show(using(0, 16276, *lines, process(3, 9, kind="graphics"), process(4, None, kind="mps")))
    assert (await only(gpus)).processes == (
        Process(1, 512 * MIB, 0),
        Process(2, 80 * MIB, 0),
        Process(3, 9 * MIB, 0),
        Process(4, None, 0),
    )


async def test_a_gpu_without_processes_says_so(gpus: Nvml, mock: Mock) -> None:
    mock.show(using(0, 16276))
    assert (await only(gpus)).processes == ()


@pytest.mark.parametrize("missing", ["_v2", "_v3"])
async def test_processes_are_listed_by_old_drivers_and_new_ones(gpus: Nvml, mock: Mock, missing: str) -> None:
    mock.show(using(0, 16276, process(1, 512)), rules=tuple(f"fail={name}{missing} {NO_FUNCTION}" for name in LISTS))
    assert (await only(gpus)).processes == (Process(1, 512 * MIB, 0),)


async def test_a_list_that_is_not_supported_hides_no_other(gpus: Nvml, mock: Mock) -> None:
    refused = (f"fail={LISTS[1]}_v3 {NO_PERMISSION}", f"fail={LISTS[1]}_v2 {NO_PERMISSION}")
    mock.show(using(0, 16276, process(1, 512)), rules=refused)
    assert (await only(gpus)).processes == (Process(1, 512 * MIB, 0),)


@pytest.mark.parametrize("missing", [(), (NEW_SM,)])
async def test_sm_use_is_told_by_new_drivers_and_old_ones(gpus: Nvml, mock: Mock, missing: tuple[str, ...]) -> None:
    rules = tuple(f"fail={name} {NO_FUNCTION}" for name in missing)
    mock.show(using(0, 16276, process(1, 512, 40), process(2, 256)), rules=rules)
    assert (await only(gpus)).processes == (Process(1, 512 * MIB, 40), Process(2, 256 * MIB, 0))


async def test_sm_use_is_unknown_where_nothing_tells_it(gpus: Nvml, mock: Mock) -> None:
    mock.show(using(0, 16276, process(1, 512, 40)), rules=tuple(f"fail={n} {NOT_SUPPORTED}" for n in (NEW_SM, OLD_SM)))
    assert (await only(gpus)).processes == (Process(1, 512 * MIB, None),)


async def test_on_a_gpu_with_mig_utilisation_is_unknown(gpus: Nvml, mock: Mock) -> None:
    mock.show(card(0, 16276, "mig=1", *figures(util="80 35"), process(1, 512, 40)))
    sample = await only(gpus)
    assert (sample.gpu_util, sample.encoder_util, sample.processes) == (None, None, (Process(1, 512 * MIB, None),))


async def test_sm_use_is_the_average_since_the_pass_before(gpus: Nvml, mock: Mock) -> None:
    old = ("sample=1 1000 20", "sample=1 2000 41")
    mock.show(using(0, 16276, process(1, 512), *old))
    assert (await only(gpus)).processes == (Process(1, 512 * MIB, 30),)
    mock.show(using(0, 16276, process(1, 512), *old, "sample=1 3000 90"))
    assert (await only(gpus)).processes == (Process(1, 512 * MIB, 90),)
    assert (await only(gpus)).processes == (Process(1, 512 * MIB, 0),)


async def test_what_was_seen_before_is_remembered_when_the_driver_is_opened_again(gpus: Nvml, mock: Mock) -> None:
    mock.show(using(0, 16276, process(1, 512), "sample=1 1000 20"))
    assert (await only(gpus)).processes == (Process(1, 512 * MIB, 20),)
    await gpus.close()
    assert (await only(gpus)).processes == (Process(1, 512 * MIB, 0),)


async def test_sm_use_is_told_again_after_the_clock_was_set_back(mock: Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.009]
    gpus = Nvml()
    monkeypatch.setattr(gpus, "_sampling", Sampling(lambda: now[0]))
    mock.show(using(0, 16276, process(1, 512), "sample=1 8000 20"))
    assert (await only(gpus)).processes == (Process(1, 512 * MIB, 20),)
    now[0] = 0.003
    await gpus.sample()
    mock.show(using(0, 16276, process(1, 512), "sample=1 4000 70"))
    assert (await only(gpus)).processes == (Process(1, 512 * MIB, 70),)
    await gpus.close()


async def test_absurd_sm_use_is_dropped(gpus: Nvml, mock: Mock) -> None:
    absurd = ("sample=1 1000 37100", "sample=2 9000000000000000000 4294967295", "sample=2 1000 30")
    mock.show(using(0, 16276, process(1, 512), process(2, 256), *absurd))
    assert (await only(gpus)).processes == (Process(1, 512 * MIB, None), Process(2, 256 * MIB, 30))
    mock.show(using(0, 16276, process(1, 512), "sample=1 2000 15"))
    assert (await only(gpus)).processes == (Process(1, 512 * MIB, 15),)  # its time was not believed either


async def test_the_use_of_processes_that_are_not_listed_is_not_shown(gpus: Nvml, mock: Mock) -> None:
    mock.show(using(0, 16276, process(1, 512, 40), "sample=99 1000 50"))
    assert (await only(gpus)).processes == (Process(1, 512 * MIB, 40),)


async def test_a_binding_that_raises_success_says_idle(gpus: Nvml, mock: Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_samples(handle: Any, seen: int) -> Any:
        raise pynvml.NVMLError(pynvml.NVML_SUCCESS)

    monkeypatch.setattr(pynvml, NEW_SM, no_samples)
    mock.show(using(0, 16276, process(1, 512)))
    assert (await only(gpus)).processes == (Process(1, 512 * MIB, 0),)


async def test_a_pass_does_not_wait_for_who_waits_for_errors(mock: Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "SLICE_SECONDS", 0.02)
    gpus = Nvml(wait=600.0)
    await gpus.devices()
    listening = asyncio.create_task(gpus.xids())
    await asyncio.sleep(0)  # it has the turn now
    assert len((await gpus.sample()).gpus) == 2
    assert await listening == []
    await gpus.close()
