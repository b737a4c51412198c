"""What a GPUNode says of what the GPUs do, and which changes are worth a write."""

from typing import Any

import msgspec
import pytest

from gpushare.core.facts import vitals
from gpushare.core.facts.vitals import FullGpuNode, FullStatus
from gpushare.gpu.sample import Sample
from gpushare.node.usage import gpunode
from gpushare.node.usage.model import ContainerUse, GpuUse, Usage
from gpushare.node.usage.overuse import Key, OverUse

MIB, GIB = 1 << 20, 1 << 30
AT = 1_800_000_000.0  # 2027-01-15T08:00:00Z
MAIN = ContainerUse("team", "train", "uid-1", "main", 20 * GIB, used=12 * GIB, sm=0.25, pids=(1, 2))


def sample(index: int = 0, **figures: Any) -> Sample:
    known = {"memory_used": 24 * GIB, "gpu_util": 37, "temperature": 61, "power": 412_000, "power_limit": 700_000,
             "temperature_limit": 90}  # fmt: skip
    return Sample(f"GPU-{index}", index, **(known | figures))


def gpu(index: int = 0, *, sampled: Sample | None = None, silent: bool = False, **more: Any) -> GpuUse:
    words: dict[str, Any] = {"model": "H100", "total": 80 * GIB, "granted": 60 * GIB, "containers": (MAIN,)}
    words |= {"unattributed": 2 * GIB, "unknown_processes": 1} | more
    return GpuUse(index, f"GPU-{index}", **words, sample=None if silent else sampled or sample(index))


def status(*gpus: GpuUse, over: tuple[OverUse, ...] = (), **more: Any) -> FullStatus:
    words: dict[str, Any] = {"sampled_at": AT, "driver": "580.1"} | more
    return gpunode.status(Usage("gpu-a", gpus or (gpu(),), **words), over, 5.0)


def conditions(of: FullStatus) -> dict[str, tuple[str, str | None, str | None]]:
    return {one.type: (one.status, one.reason, one.message) for one in of.conditions or ()}


def over_use(pod: str = "train", uid: str = "uid-1", on: int = 0, used: int = 30 * GIB) -> OverUse:
    return OverUse(Key(uid, "main", f"GPU-{on}"), "team", pod, on, 20 * GIB, used, AT, AT)


# What it says


def test_it_says_in_mib_percent_degrees_and_watts_what_the_gpus_do() -> None:
    shown = status()
    assert shown.gpus is not None
    assert msgspec.json.decode(msgspec.json.encode(shown.gpus[0])) == {
        "uuid": "GPU-0", "model": "H100", "shares": 1, "totalMiB": 81920, "grantedMiB": 61440, "usedMiB": 24576,
        "unattributedMiB": 2048, "utilization": 37, "temperature": 61, "temperatureLimit": 90, "powerWatts": 412,
        "powerLimitWatts": 700, "knownProcesses": 2, "unknownProcesses": 1,
        "containers": [{"namespace": "team", "pod": "train", "uid": "uid-1", "container": "main",
                        "grantedMiB": 20480, "usedMiB": 12288, "smPercent": 25}],
    }  # fmt: skip
    assert (shown.sampled_at, shown.driver, shown.sample_seconds) == ("2027-01-15T08:00:00Z", "580.1", 5.0)


def test_its_summary_is_the_row_that_kubectl_prints() -> None:
    two = status(gpu(0), gpu(1, granted=20 * GIB, sampled=sample(1, gpu_util=63, temperature=70))).summary
    assert two == vitals.Summary(2, "H100", "80/160 GiB", "48 GiB (30%)", "50%", "70C", "824/1400W", "ok")


def test_a_small_use_is_not_shown_as_nothing() -> None:
    summary = status(gpu(granted=1536 * MIB, sampled=sample(memory_used=300 * MIB))).summary
    assert summary is not None
    assert (summary.granted, summary.used) == ("1.5/80 GiB", "0.3 GiB (0%)")


@pytest.mark.parametrize(
    ("models", "shown"), [(("A100", "A100"), "A100"), (("A100", "H100"), "A100 +1 more"), (("", ""), "-")]
)
def test_models_that_differ_are_counted(models: tuple[str, str], shown: str) -> None:
    summary = status(*(gpu(i, model=model) for i, model in enumerate(models))).summary
    assert summary is not None
    assert summary.model == shown


def test_an_unhealthy_gpu_is_counted() -> None:
    summary = status(gpu(0, healthy=False, why="XID 79"), gpu(1)).summary
    assert summary is not None
    assert summary.health == "1 of 2 unhealthy"


def test_what_a_gpu_does_not_tell_is_unknown_and_never_0() -> None:
    nothing = Sample("GPU-0", 0)
    shown = status(gpu(sampled=nothing, containers=(), unattributed=None, unknown_processes=None))
    assert shown.gpus is not None
    assert msgspec.to_builtins(shown.gpus[0]) == {
        "uuid": "GPU-0", "model": "H100", "shares": 0, "totalMiB": 81920, "grantedMiB": 61440
    }  # fmt: skip
    assert shown.summary == vitals.Summary(1, "H100", "60/80 GiB", "-", "-", "-", "-", "ok")


def test_one_gpu_that_does_not_tell_makes_the_sum_unknown() -> None:
    summary = status(gpu(0), gpu(1, sampled=sample(1, memory_used=None, power=None))).summary
    assert summary is not None
    assert (summary.used, summary.power, summary.utilization) == ("-", "-", "37%")


def test_a_silent_driver_makes_all_figures_unknown_and_keeps_their_time() -> None:
    silent = status(gpu(silent=True), failure="the driver has not answered for 15 s")
    assert silent.sampled_at == "2027-01-15T08:00:00Z"
    assert conditions(silent)["Sampled"] == ("False", "DriverSilent", "the driver has not answered for 15 s")
    assert silent.gpus is not None
    (shown,) = silent.gpus
    assert (shown.used_mib, shown.unattributed_mib, shown.known_processes, shown.utilization) == (None,) * 4
    (container,) = shown.containers
    assert (container.granted_mib, container.used_mib, container.sm_percent) == (20480, None, None)
    assert silent.summary == vitals.Summary(1, "H100", "60/80 GiB", "-", "-", "-", "-", "unknown")


def test_a_driver_that_never_answered_has_no_time() -> None:
    assert "sampledAt" not in gpunode.written(status(gpu(silent=True), sampled_at=None, failure="no driver"))


def test_containers_that_use_too_much_are_named_in_one_sentence_and_marked() -> None:
    shown = status(over=(over_use(),))
    sentence = "more GPU memory than asked for is used by team/train (main, GPU 0)"
    assert conditions(shown)["OverUse"] == ("True", "AboveRequests", sentence)
    assert shown.gpus is not None
    assert shown.gpus[0].containers[0].over_use
    many = status(over=tuple(over_use(f"p{i:02}") for i in range(12)))
    message = conditions(many)["OverUse"][2] or ""
    assert message.endswith(", team/p09 (main, GPU 0), 2 more")


def test_pods_that_use_too_much_are_named_on_their_gpu_by_uid() -> None:
    over = (over_use("b", "uid-2"), over_use(), over_use("c", "uid-3", on=1), over_use("b", "uid-2", on=1))
    shown = status(gpu(0), gpu(1), gpu(2), over=over)
    assert [one.over_users for one in shown.gpus or ()] == [("uid-1", "uid-2"), ("uid-2", "uid-3"), ()]


@pytest.mark.parametrize("why", ["failure", "containers_unknown"])
def test_nobody_says_that_all_keep_to_their_requests_where_their_use_is_unknown(why: str) -> None:
    words: dict[str, Any] = {why: "because"}
    assert conditions(status(**words))["OverUse"] == ("Unknown", *gpunode.USE_UNKNOWN)


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    first = gpunode.dated(status(), None, AT)
    later = gpunode.dated(status(over=(over_use(),)), first, AT + 60)
    assert [one.last_transition_time for one in later.conditions or ()] == [
        "2027-01-15T08:00:00Z",
        "2027-01-15T08:01:00Z",
    ]


def test_what_is_unknown_is_left_out_and_every_0_is_shown() -> None:
    written = gpunode.written(status(gpu(index=0, granted=0, containers=()), driver=""))
    fields = {field.encode_name for field in msgspec.structs.fields(FullStatus)}
    assert set(written) == fields - {"driver", "containersUnknown"}
    (shown,) = written["gpus"]
    assert (shown["index"], shown["healthy"], shown["shares"], shown["grantedMiB"]) == (0, True, 0, 0)
    assert "why" not in shown


def test_where_gpus_are_sold_by_count_nothing_is_said_to_be_given_out() -> None:
    written = gpunode.written(status(gpu(granted=None, containers=(msgspec.structs.replace(MAIN, granted=None),))))
    assert "grantedMiB" not in written["gpus"][0] | written["gpus"][0]["containers"][0]
    assert written["gpus"][0]["shares"] == 1
    assert written["summary"]["granted"] == "-/80 GiB"


def test_what_is_written_is_what_is_read() -> None:
    written = gpunode.dated(status(gpu(0), gpu(1, silent=True), over=(over_use(),)), None, AT)
    read = msgspec.json.decode(msgspec.json.encode({"status": gpunode.written(written)}), type=FullGpuNode)
    assert read.status == written


# What is worth a write


def more_memory(mib: int) -> GpuUse:
    return gpu(sampled=sample(memory_used=24 * GIB + mib * MIB))


def uses(**changes: Any) -> GpuUse:
    return gpu(containers=(msgspec.structs.replace(MAIN, **changes),))


@pytest.mark.parametrize(
    ("changed", "enough"),
    [
        (gpu(sampled=sample(gpu_util=46)), False),
        (gpu(sampled=sample(gpu_util=47)), True),
        (gpu(sampled=sample(gpu_util=27)), True),
        (gpu(sampled=sample(gpu_util=None)), True),
        (more_memory(819), False),
        (more_memory(820), True),
        (more_memory(-820), True),
        (gpu(unattributed=3 * GIB), True),
        (gpu(sampled=sample(temperature=63)), False),
        (gpu(sampled=sample(temperature=64)), True),
        (gpu(sampled=sample(power=446_000)), False),
        (gpu(sampled=sample(power=447_000)), True),
        (gpu(sampled=sample(power_limit=600_000)), True),
        (gpu(healthy=False, why="XID 79"), True),
        (gpu(granted=60 * GIB + MIB), True),
        (gpu(unknown_processes=2), True),
        (gpu(silent=True), True),
        (gpu(containers=()), True),
        (gpu(containers=(MAIN, MAIN)), True),
        (uses(pids=(1, 2, 3)), True),
        (uses(pod_uid="uid-2"), True),
        (uses(used=12 * GIB + 900 * MIB), True),
        (uses(used=12 * GIB + 100 * MIB), False),
        (uses(used=None), True),
        (uses(sm=0.3), False),
        (uses(sm=0.35), True),
    ],
)
def test_only_a_change_that_matters_is_written(changed: GpuUse, enough: bool) -> None:
    assert gpunode.changed_enough(status(gpu()), status(changed)) is enough


def test_a_later_time_alone_is_not_written_at_once() -> None:
    assert not gpunode.changed_enough(status(), status(sampled_at=AT + 5))
    assert not gpunode.changed_enough(gpunode.dated(status(), None, AT), status())


def test_a_driver_that_falls_silent_is_written_and_how_long_it_is_silent_is_not() -> None:
    silent, longer = (status(gpu(silent=True), failure=f"no answer for {seconds} s") for seconds in (15, 20))
    assert gpunode.changed_enough(status(), silent)
    assert not gpunode.changed_enough(silent, longer)


def test_over_use_is_written_when_it_begins_and_when_another_pod_joins() -> None:
    one, two = status(over=(over_use(),)), status(over=(over_use(), over_use("other")))
    assert gpunode.changed_enough(status(), one)
    assert gpunode.changed_enough(one, two)
    assert not gpunode.changed_enough(one, one)


def test_a_pod_that_uses_even_more_of_its_gpu_is_no_news() -> None:
    assert not gpunode.changed_enough(status(over=(over_use(),)), status(over=(over_use(used=60 * GIB),)))
    namesake = status(gpu(containers=()), over=(over_use(uid="uid-2"),))
    assert gpunode.changed_enough(status(gpu(containers=()), over=(over_use(),)), namesake)


def test_another_gpu_is_written() -> None:
    assert gpunode.changed_enough(status(gpu(0)), status(gpu(0), gpu(1)))
    assert gpunode.changed_enough(None, status())


def test_however_many_containers_there_are_an_api_server_takes_it() -> None:
    uses = tuple(
        ContainerUse("n" * 63, f"{number:03}".ljust(253, "x"), f"uid-{number}", "c" * 63, GIB, used=GIB, sm=0.5)
        for number in range(250)
    )
    last = OverUse(Key("uid-249", "c" * 63, "GPU-7"), "n" * 63, "x", 7, GIB, 2 * GIB, AT, AT)
    all_of_first = [over_use(uid=f"{number:036}", on=0) for number in range(250)]
    shown = status(*[gpu(index, containers=uses) for index in range(64)], over=(last, *all_of_first))
    assert len(msgspec.json.encode(gpunode.written(shown))) < 600_000
    assert shown.gpus is not None
    assert {one.shares for one in shown.gpus} == {250}
    assert {len(one.containers) for one in shown.gpus} == {16}
    assert [one.uid for one in shown.gpus[7].containers if one.over_use] == ["uid-249"]
