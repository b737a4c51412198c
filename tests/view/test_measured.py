"""What a node does as numbers: what is unknown of one GPU is unknown of all together, and what is old is unknown."""

import pytest

from gpushare.core.explain.measured import Use
from gpushare.core.facts.objects import Condition
from gpushare.core.facts.vitals import ContainerVitals, FullStatus, GpuAndContainers
from gpushare.view import measured
from tests.support.builders import facts

NOW = 1794745805.0  # 2026-11-15T12:30:05Z
FRESH, OLD = "2026-11-15T12:30:00Z", "2026-11-15T12:20:00Z"
WHERE = facts(8000, 6000)


def gpu(index: int, used: int | None = 100, busy: int | None = 50, *containers: ContainerVitals) -> GpuAndContainers:
    return GpuAndContainers(
        index, WHERE.gpus[index].uuid, used_mib=used, utilization=busy, containers=tuple(containers)
    )  # fmt: skip


def status(*gpus: GpuAndContainers, sampled: str = FRESH) -> FullStatus:
    return FullStatus(sampled, gpus=gpus)


def container(uid: str, granted: int, used: int | None) -> ContainerVitals:
    return ContainerVitals("ml", f"pod-{uid}", uid, "main", granted, used)


def test_memory_is_summed_up_and_utilisation_is_the_mean() -> None:
    found = measured.of_node(status(gpu(0, 100, 50), gpu(1, 300, 25)), WHERE, NOW)
    assert found is not None
    assert (found.used, found.utilization) == (400, 38)


def test_an_idle_gpu_is_not_an_unknown_one() -> None:
    found = measured.of_node(status(gpu(0, 0, 0), gpu(1, 0, 0)), WHERE, NOW)
    assert found is not None
    assert (found.used, found.utilization) == (0, 0)


@pytest.mark.parametrize("second", [[gpu(1, None, None)], []])
def test_what_is_unknown_of_one_gpu_is_unknown_of_the_node(second: list[GpuAndContainers]) -> None:
    found = measured.of_node(status(gpu(0), *second), WHERE, NOW)
    assert found is not None
    assert (found.used, found.utilization) == (None, None)


def test_old_figures_are_not_shown_as_new_ones() -> None:
    over = container("u", 100, 900)
    found = measured.of_node(status(gpu(0, 1, 1, over), gpu(1), sampled=OLD), WHERE, NOW)
    assert found is not None
    assert (found.fresh, found.used, found.utilization, found.pods, found.over) == (False, None, None, {}, [])


def test_a_node_without_a_gpunode_or_without_gpus_is_not_measured() -> None:
    assert measured.of_node(None, WHERE, NOW) is None
    assert measured.of_node(status(gpu(0)), None, NOW) is None


def test_pods_are_added_up_over_their_gpus() -> None:
    told = status(gpu(0, 1, 1, container("u", 100, 60)), gpu(1, 1, 1, container("u", 100, 130), container("v", 9, 9)))
    found = measured.of_node(told, WHERE, NOW)
    assert found is not None
    assert found.pods == {"u": Use(190, 30), "v": Use(9, 0)}
    assert [(over.gpu, over.of.uid, over.by, over.shared) for over in found.over] == [(1, "u", 30, True)]


def test_a_pod_alone_on_its_gpu_puts_nobody_at_risk() -> None:
    found = measured.of_node(status(gpu(0, 1, 1, container("u", 100, 130)), gpu(1)), WHERE, NOW)
    assert found is not None
    assert [over.shared for over in found.over] == [False]


def test_why_the_driver_was_not_asked_is_told() -> None:
    told = FullStatus(OLD, conditions=(Condition("OverUse", "False"), Condition("Sampled", "False", "X", "it hangs")))
    found = measured.of_node(told, WHERE, NOW)
    assert found is not None
    assert found.why_not_sampled == "it hangs"
