"""Kinds of requests: one entry of the table is all that a resource needs."""

import pytest

from gpushare.core.facts import kinds, names, objects
from gpushare.core.facts.kinds import MEMORY, WHOLE
from gpushare.core.facts.model import Kind, Refusal, Request
from gpushare.core.placement import fit, gpu_choice
from gpushare.core.placement.room import Room
from tests.support.builders import asks, container, facts, pod, share


def test_each_resource_has_a_kind() -> None:
    assert kinds.BY_RESOURCE == {"aliyun.com/gpu-mem": MEMORY, "aliyun.com/gpu-count": WHOLE}
    assert kinds.KINDS == (MEMORY, WHOLE)


def test_memory_takes_its_part_of_a_gpu_and_whole_gpus_take_all_of_it() -> None:
    (gpu,) = facts(10).gpus
    assert share(6, gpus=2).on(gpu) == 3
    assert share(gpus=2, kind=WHOLE).on(gpu) == 10


@pytest.mark.parametrize(
    ("kind", "gpus", "words"),
    [
        (MEMORY, 1, "7000 MiB"),
        (MEMORY, 2, "7000 MiB over 2 GPUs"),
        (WHOLE, 1, "a whole GPU"),
        (WHOLE, 2, "2 whole GPUs"),
    ],
)
def test_a_share_in_words(kind: Kind, gpus: int, words: str) -> None:
    assert kind.in_words("7000 MiB", gpus) == words


def test_shapes_differ_by_kind() -> None:
    shapes = {asks(4).shape, asks(whole=1).shape, asks(4, whole=1).shape}
    assert len(shapes) == 3
    assert asks(4).shape in shapes


def test_another_resource_for_whole_gpus_is_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(kinds.BY_RESOURCE, names.NVIDIA_GPU, WHOLE)
    needs = objects.ResourceNeeds({names.NVIDIA_GPU: "2"})
    request = pod(containers=[objects.Container("main", None, needs)]).request
    assert isinstance(request, Request)
    assert [(s.kind, s.gpus) for s in request.shares] == [(WHOLE, 2)]
    assert gpu_choice.plan(request, Room.of(facts(10, 10, 10), (0, 1, 0)), "binpack") == ((0, 2),)
    assert fit.parts(request, "MiB") == "2 whole GPUs"
    needs = objects.ResourceNeeds({names.NVIDIA_GPU: "1", names.GPU_MEM: 4})
    refusal = pod(containers=[objects.Container("main", None, needs)]).request
    assert isinstance(refusal, Refusal)
    assert refusal.message == "aliyun.com/gpu-mem and nvidia.com/gpu on one container"


def test_what_a_broken_request_counts_for_is_read_by_kind() -> None:
    both = pod(containers=[container("a", 4, whole=1), container("b", 3)])
    assert (both.spec_units, both.spec_exclusive) == (7, True)
    assert (pod(4).spec_units, pod(4).spec_exclusive) == (4, False)
