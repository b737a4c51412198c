"""What is measured, beside what was given: matched to the right GPU and the right pod, and unknown where it is."""

from gpushare.core.explain import measured
from gpushare.core.explain.measured import Use
from gpushare.core.facts.vitals import ContainerVitals, GpuAndContainers, GpuVitals
from tests.support.builders import facts


def container(granted: int, used: int | None, uid: str = "u") -> ContainerVitals:
    return ContainerVitals(uid=uid, container="main", granted_mib=granted, used_mib=used)


def test_a_gpu_is_the_one_of_its_uuid_even_if_its_index_has_changed() -> None:
    where = facts(8000, 8000)
    first, second = where.gpus
    told = [GpuVitals(0, second.uuid, used_mib=2), GpuVitals(1, first.uuid, used_mib=1)]
    assert {index: gpu.used_mib for index, gpu in measured.by_index(told, where).items()} == {0: 1, 1: 2}


def test_a_gpu_that_the_node_does_not_have_is_left_out() -> None:
    where = facts(8000)
    assert measured.by_index([GpuVitals(0, "GPU-of-another", used_mib=1)], where) == {}


def test_a_container_is_over_by_what_it_uses_above_what_it_was_given() -> None:
    assert measured.over(container(8000, 9000)) == 1000
    assert measured.over(container(8000, 8000)) == 0
    assert measured.over(container(8000, None)) == 0


def test_a_container_that_was_given_no_memory_is_not_over() -> None:
    assert measured.over(container(0, 900)) == 0


def test_what_one_container_leaves_does_not_hide_what_another_takes() -> None:
    assert measured.use([container(8000, 9000), container(8000, 100)]) == Use(9100, 1000)


def test_what_is_unknown_of_one_container_is_unknown_of_the_pod() -> None:
    assert measured.use([container(8000, 9000), container(8000, None)]) == Use(None, 1000)
    assert measured.use([]) is None


def test_the_keys_of_a_gpu_are_those_that_are_known() -> None:
    told = GpuVitals(0, "GPU-0", used_mib=0, power_watts=70)
    assert measured.device_keys(told, "then") == {"usedMiB": 0, "powerWatts": 70, "sampledAt": "then"}
    assert measured.device_keys(GpuVitals(0, "GPU-0"), "then") == {}


def test_the_keys_of_a_pod_are_found_by_its_uid() -> None:
    gpu = GpuAndContainers(0, "GPU-0", containers=(container(8000, 9000, "u"), container(8000, 70, "v")))
    assert measured.pod_keys(gpu, "u") == {"usedMiB": 9000, "overMiB": 1000}
    assert measured.pod_keys(gpu, "v") == {"usedMiB": 70}
    assert measured.pod_keys(gpu, "w") == {}
    assert measured.pod_keys(GpuVitals(0, "GPU-0"), "u") == measured.pod_keys(None, "u") == {}
