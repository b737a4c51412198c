"""Kinds of requests: one entry of the table is all that a resource needs."""

from typing import Any

import pytest

from gpushare.core.facts import kinds, names, objects
from gpushare.core.facts.kinds import MEMORY, MPS, NVIDIA_WHOLE, WHOLE
from gpushare.core.facts.model import Kind, Pin, Refusal, Request
from gpushare.core.placement import fit, gpu_choice
from gpushare.core.placement.room import Room
from tests.support.builders import asking, asks, container, facts, pod, share


def test_each_resource_has_a_kind() -> None:
    assert kinds.BY_RESOURCE == {
        "aliyun.com/gpu-mem": MEMORY, "aliyun.com/gpu-count": WHOLE, "nvidia.com/gpu": NVIDIA_WHOLE,
        "keti.com/mpsgpu": MPS,
    }  # fmt: skip
    assert kinds.KINDS == (MEMORY, WHOLE, NVIDIA_WHOLE, MPS)


def test_device_plugins_serve_memory_and_whole_gpus_alone() -> None:
    assert kinds.BY_PLUGIN == {"aliyun.com/gpu-mem": MEMORY, "aliyun.com/gpu-count": WHOLE}


def test_what_a_share_takes_of_a_gpu() -> None:
    node = facts(10, slots=4)
    (gpu,) = node.gpus
    assert share(6, gpus=2).on(gpu, node) == 3
    assert share(gpus=2, kind=WHOLE).on(gpu, node) == 10
    assert share(gpus=2, kind=NVIDIA_WHOLE).on(gpu, node) == 10


@pytest.mark.parametrize(
    ("slot_memory", "unit", "takes"),
    [("3Mi", "MiB", 3), ("2500k", "MiB", 3), ("1", "MiB", 1), ("3Mi", "GiB", 1), ("2Gi", "GiB", 2), (None, "MiB", 2),
     ("0", "MiB", 2)],
)  # fmt: skip
def test_an_mps_share_takes_what_the_pod_names_rounded_up_or_its_part(
    slot_memory: str | None, unit: str, takes: int
) -> None:
    node = facts(10, slots=4, unit=unit)
    (asked,) = asks(mps=1, slot_memory=slot_memory).shares
    assert asked.on(node.gpus[0], node) == takes


def test_the_part_of_a_small_gpu_is_at_least_one_unit() -> None:
    node = facts(3, slots=10)
    assert asks(mps=1).shares[0].on(node.gpus[0], node) == 1


def test_gpulimits_counts_where_gpurequest_says_nothing() -> None:
    def takes(**notes: str) -> int:
        return asks(mps=1, notes=notes).shares[0].slot_bytes

    assert takes(GPUlimits="1Mi") == 1 << 20
    assert takes(GPUlimits="1Mi", GPUrequest="2Mi") == takes(GPUlimits="2Mi", GPUrequest="1Mi") == 2 << 20
    assert takes(GPUlimits="1Mi", GPUrequest="0") == 1 << 20


@pytest.mark.parametrize("key", ["GPUrequest", "GPUlimits"])
@pytest.mark.parametrize("written", ["abc", "-1", "", "500m", "2Ti", "1e30", "9" * 400])
def test_memory_for_a_slot_that_makes_no_sense_is_refused_only_to_pods_that_ask_for_one(key: str, written: str) -> None:
    refused = pod(mps=1, notes={key: written}).request
    assert isinstance(refused, Refusal)
    assert (refused.code, refused.message) == ("NotBytes", f"{key} is not a number of bytes up to 1Ti")
    assert isinstance(pod(4, notes={key: written}).request, Request)


@pytest.mark.parametrize("amount", ["4Gi", "-1", "1500m", "abc", 2000])
@pytest.mark.parametrize("resource", ["mps", "nvidia", "whole"])
def test_a_number_of_gpus_that_makes_no_sense_is_refused(resource: str, amount: str) -> None:
    refused = pod(containers=[asking("main", resource, amount)]).request
    assert isinstance(refused, Refusal)
    assert refused.code == "CountNotWhole"


def test_nvidias_name_is_ours_only_with_our_env() -> None:
    ours, foreign = pod(nvidia=2), pod(nvidia=2, direct=False)
    assert isinstance(ours.request, Request)
    assert [(s.kind, s.gpus) for s in ours.request.shares] == [(NVIDIA_WHOLE, 2)]
    assert (ours.request.pin, ours.asks_nvidia, ours.spec_unknown) == (Pin.DIRECT, False, True)
    assert (foreign.request, foreign.asks_nvidia) == (None, True)
    assert not pod(containers=[container("main", nvidia=0)], direct=False).asks_nvidia


def test_a_pod_that_asks_us_and_nvidias_plugin_fits_no_node() -> None:
    """No node serves both, and a node of ours would show the second container no GPU."""
    mixed = [container("a", 4, visible="gpushare.io/visible-0"), container("b", nvidia=1)]
    request = pod(containers=mixed, direct=False).request
    assert isinstance(request, Request)
    assert request.pin is None
    refused = fit.Question(request).refusal(Room.of(facts(10, nvidia_whole=True), [0]))
    assert refused is fit.NEEDS_POLICY


@pytest.mark.parametrize("first", ["memory", "whole", "nvidia", "mps"])
@pytest.mark.parametrize("second", ["memory", "whole", "nvidia", "mps"])
def test_two_kinds_on_one_container_are_refused_whichever_two(first: str, second: str) -> None:
    limits: dict[str, Any] = {first: 1, second: 1}
    request = pod(containers=[container("main", **limits)]).request
    if first == second:
        assert isinstance(request, Request)
    else:
        assert isinstance(request, Refusal)
        assert request.code == "BothLimits"


@pytest.mark.parametrize(
    ("kind", "gpus", "words"),
    [
        (MEMORY, 1, "7000 MiB"),
        (MEMORY, 2, "7000 MiB over 2 GPUs"),
        (WHOLE, 1, "a whole GPU"),
        (WHOLE, 2, "2 whole GPUs"),
        (MPS, 1, "an MPS share of 7000 MiB"),
        (MPS, 2, "an MPS share of 7000 MiB on 2 GPUs"),
    ],
)
def test_a_share_in_words(kind: Kind, gpus: int, words: str) -> None:
    assert kind.in_words("7000 MiB", gpus) == words


def test_shapes_differ_by_kind() -> None:
    shapes = {asks(4).shape, asks(whole=1).shape, asks(4, whole=1).shape, asks(nvidia=1).shape, asks(mps=1).shape}
    shapes |= {asks(mps=1, slot_memory="1Mi").shape, asks(mps=1, slot_memory="2Mi").shape}
    assert len(shapes) == 7
    assert asks(4).shape in shapes


def test_another_resource_for_whole_gpus_is_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(kinds.BY_RESOURCE, "example.com/gpu", WHOLE)
    needs = objects.ResourceNeeds({"example.com/gpu": "2"})
    request = pod(containers=[objects.Container("main", None, needs)]).request
    assert isinstance(request, Request)
    assert [(s.kind, s.gpus) for s in request.shares] == [(WHOLE, 2)]
    assert gpu_choice.plan(request, Room.of(facts(10, 10, 10), (0, 1, 0)), "binpack") == ((0, 2),)
    assert fit.parts(request, "MiB") == "2 whole GPUs"
    needs = objects.ResourceNeeds({"example.com/gpu": "1", names.GPU_MEM: 4})
    refusal = pod(containers=[objects.Container("main", None, needs)]).request
    assert isinstance(refusal, Refusal)
    assert refusal.message == "aliyun.com/gpu-mem and example.com/gpu on one container"


def test_what_a_broken_request_counts_for_is_read_by_kind() -> None:
    both = pod(containers=[container("a", 4, whole=1), container("b", 3)])
    assert (both.spec_units, both.spec_unknown) == (7, True)
    assert (pod(4).spec_units, pod(4).spec_unknown) == (4, False)


def test_a_pod_is_a_client_of_mps_by_its_share_or_if_each_container_mounts_the_pipes() -> None:
    pipes, other = ([objects.VolumeMount(path)] for path in ("/tmp/nvidia-mps/", "/tmp"))
    client, mounting, plain = container("a", mps=1), container("b", 5), container("c", 5)
    mounting.volume_mounts, plain.volume_mounts = [*other, *pipes], other

    def by_mps(*containers: objects.Container) -> bool:
        return asks(containers=containers).by_mps

    assert by_mps(client)
    assert by_mps(mounting)
    assert by_mps(client, mounting, container("asks nothing"))
    assert not by_mps(plain)
    assert not by_mps(client, plain)
