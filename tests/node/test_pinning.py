"""Direct where the admission policy or the webhook is there, through the device plugin elsewhere; and never beside
NVIDIA's own."""

import shlex

import pytest

from gpushare.core.facts import names, objects
from gpushare.core.facts.model import Pin
from gpushare.kube.resources import MUTATING_POLICIES, MUTATING_WEBHOOKS
from gpushare.node import pinning
from gpushare.node.pinning import Choice
from gpushare.obs.errors import BAD_INPUT, UserError
from tests.support import builders, manifests
from tests.support.scripted_api import FakeTime, answer, cut, refuse, serve_api

POLICY = f"GET {MUTATING_POLICIES.item('', pinning.POLICY)}"
WEBHOOK = f"GET {MUTATING_WEBHOOKS.item('', pinning.POLICY)}"
THERE = answer({"kind": "MutatingAdmissionPolicy", "metadata": {"name": pinning.POLICY}})


@pytest.mark.parametrize(
    ("policy", "webhook", "pin"),
    [
        ([THERE], [], Pin.DIRECT),
        ([refuse(404, "NotFound")], [refuse(404, "NotFound")], Pin.PLUGIN),
        ([refuse(403, "Forbidden")], [refuse(403, "Forbidden")], Pin.PLUGIN),
        ([refuse(404, "NotFound")], [THERE], Pin.DIRECT),
        ([refuse(403, "Forbidden")], [THERE], Pin.DIRECT),
        ([refuse(503), cut, refuse(500), THERE], [], Pin.DIRECT),
        ([refuse(429), refuse(404), refuse(404)], [refuse(503), THERE], Pin.DIRECT),
    ],
)
async def test_policy_or_webhook_decide_and_are_asked_for_until_there_is_an_answer(
    policy: list[object], webhook: list[object], pin: Pin
) -> None:
    time = FakeTime()
    async with serve_api() as (server, api_):
        server.on(POLICY, *policy)  # type: ignore[arg-type]
        if webhook:
            server.on(WEBHOOK, *webhook)  # type: ignore[arg-type]
        assert await pinning.decide("auto", api_, time.sleep) is pin
        assert (server.count(POLICY), server.count(WEBHOOK)) == (len(policy), len(webhook))
        assert bool(time.slept) is (len(policy) > 1)


@pytest.mark.parametrize(("choice", "pin"), [("direct", Pin.DIRECT), ("plugin", Pin.PLUGIN)])
async def test_an_explicit_choice_asks_nobody(choice: Choice, pin: Pin) -> None:
    async with serve_api() as (server, api_):
        assert await pinning.decide(choice, api_) is pin
        assert server.asked == []


def test_what_is_looked_for_is_what_is_shipped() -> None:
    assert manifests.one("admission.yaml", "MutatingAdmissionPolicy")["metadata"]["name"] == pinning.POLICY
    assert manifests.one("webhook.yaml", "MutatingWebhookConfiguration")["metadata"]["name"] == pinning.POLICY


@pytest.mark.parametrize("name", ["gpu-a", "odd name"])
def test_beside_nvidias_plugin_it_refuses_and_says_how_to_switch_that_off(name: str) -> None:
    node = objects.Node(objects.Metadata(name), objects.NodeStatus(allocatable={names.NVIDIA_GPU: "8"}))
    with pytest.raises(UserError) as caught:
        pinning.refuse_beside_nvidia(node)
    assert caught.value.code == BAD_INPUT
    assert "nvidia.com/gpu is 8" in caught.value.why
    command = f"kubectl label node {shlex.quote(name)} nvidia.com/gpu.deploy.device-plugin=false"
    assert caught.value.way.startswith(command)


def test_beside_shared_gpus_of_another_name_it_refuses_too() -> None:
    status = objects.NodeStatus(allocatable={"nvidia.com/gpu": "0", "nvidia.com/gpu.shared": "8"})
    with pytest.raises(UserError, match="gives out the same GPUs"):
        pinning.refuse_beside_nvidia(objects.Node(objects.Metadata(name="gpu-a"), status))


@pytest.mark.parametrize("allocatable", [None, {}, {names.NVIDIA_GPU: "0"}, {names.GPU_MEM: "100"}])
def test_a_node_that_nvidias_plugin_has_left_is_ours(allocatable: dict[str, objects.Quantity] | None) -> None:
    pinning.refuse_beside_nvidia(
        objects.Node(objects.Metadata("n"), objects.NodeStatus({names.NVIDIA_GPU: "8"}, allocatable))
    )


@pytest.mark.parametrize(("count", "ours"), [(0, True), (2, True), (3, False), (8, False)])
def test_what_we_sold_under_nvidias_name_is_told_from_its_plugin_by_our_annotation(count: int, ours: bool) -> None:
    """One for each GPU is ours; replicas are not."""
    node = builders.node(8000, 8000, name="gpu-a", nvidia_whole=True, nvidia=count)
    if ours:
        pinning.refuse_beside_nvidia(node)
    else:
        with pytest.raises(UserError, match="NVIDIA's device plugin gives out the same GPUs"):
            pinning.refuse_beside_nvidia(node)
    with pytest.raises(UserError):
        pinning.refuse_beside_nvidia(builders.node(8000, 8000, nvidia=2))
    pinning.refuse_beside_nvidia(builders.node(8000, 8000, nvidia=2), ours=2)  # the annotation was removed by hand


@pytest.mark.parametrize(
    ("slots", "whole", "flags"),
    [(10, False, "--mps-slots=10"), (0, True, "--nvidia-gpu=whole"), (3, True, "--mps-slots=3 and --nvidia-gpu=whole")],
)
def test_a_device_plugin_sells_neither_slots_nor_nvidias_name(slots: int, whole: bool, flags: str) -> None:
    node = builders.node(8000, name="gpu-a", pin="plugin")
    pinning.refuse_to_sell(Pin.DIRECT, slots=slots, nvidia_whole=whole, node=node)
    pinning.refuse_to_sell(Pin.PLUGIN, slots=0, nvidia_whole=False, node=node)
    with pytest.raises(UserError) as caught:
        pinning.refuse_to_sell(Pin.PLUGIN, slots=slots, nvidia_whole=whole, node=node)
    assert caught.value.what == f"gpu-a: {flags} cannot be served by a device plugin"
    assert caught.value.code == BAD_INPUT


def test_a_node_that_still_sells_them_does_not_become_one_of_a_device_plugin() -> None:
    with pytest.raises(UserError, match="it still sells MPS slots"):
        pinning.refuse_to_sell(Pin.PLUGIN, slots=0, nvidia_whole=False, node=builders.node(8000, slots=2))
