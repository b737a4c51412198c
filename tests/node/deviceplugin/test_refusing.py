"""A refusal is final for the pod, so it says why; and it gives nothing, invents nothing and leaves nothing behind."""

import pytest
from msgspec.structs import replace

from gpushare.core.facts import names
from gpushare.core.facts.model import Gpu, NodeFacts, Pin, Unit
from gpushare.devcluster.kubelet.device_manager import PluginError
from gpushare.node.deviceplugin import kubelet_info, podlist
from tests.node.deviceplugin import promises
from tests.node.deviceplugin.made import NODE, facts, pod
from tests.node.deviceplugin.world import World, world_with

MEMORY, WHOLE = names.GPU_MEM, names.GPU_COUNT


async def refusal(world: World, resource: str, *asked: str) -> str:
    with pytest.raises(PluginError) as caught:
        await world.direct[resource].allocate(list(asked))
    return str(caught.value).removeprefix("rpc error: code = FailedPrecondition desc = gpushare: ")


def units(world: World, gpu: int, bits: int) -> list[str]:
    return world.plugin.state.catalog.names({f"GPU-{gpu}": bits})


async def test_a_unit_somebody_holds_is_refused_and_the_holder_named() -> None:
    world = await world_with(8, 8)
    await world.run(pod(3, name="first"), on=[[1]])
    world.bound(pod(3), on=[[1]])
    why = await refusal(world, MEMORY, *units(world, 1, 0b1110))
    assert why == "kubelet asks for units of GPU 1 of gpu-a that pod default/first holds"
    assert world.plugin.held() == {"GPU-1": 3}


async def test_before_a_unit_is_refused_its_holder_is_looked_up_once() -> None:
    world = await world_with(8)
    first, second = await world.run(pod(6)), world.bound(pod(6), on=[[0]])
    world.end(first)
    assert world.plugin.held() == {"GPU-0": 6}, "the watch is late"
    assert await world.admit(second)
    assert world.server.lists == 1
    assert world.plugin.held() == {"GPU-0": 6}


async def test_a_unit_that_kubelet_hands_out_twice_is_not_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody lists while an Allocate is under way, just after a pod has ended: kubelet forgets what it promised."""
    world = await world_with(8)
    ending, first, second = await world.run(pod(2)), world.bound(pod(3), on=[[0]]), world.bound(pod(3), on=[[0]])
    world.deliver()
    offered: list[str] = []
    prefer = world.direct[MEMORY].prefer

    async def listening(available: list[str], must: list[str], size: int) -> list[str]:
        offered[:] = available
        return await prefer(available, must, size)

    async def meddle() -> None:
        world.meanwhile(None)
        world.end(ending)
        world.list_pod_resources()

    monkeypatch.setattr(world.direct[MEMORY], "prefer", listening)
    world.meanwhile(meddle)
    assert await world.admit(first)
    given = set(world._ids(first, "main-0", MEMORY))
    assert await world.admit(second)
    assert given <= set(offered), "kubelet believes that they are free"
    promises.no_unit_is_held_twice(world)
    assert world.plugin.held() == {"GPU-0": 8}, "the watch has not said yet that one has ended"
    why = await refusal(world, MEMORY, *given)
    assert "units of GPU 0 of gpu-a that pod default/pod-1 holds" in why


async def test_a_mixture_of_gpus_is_refused_with_the_numbers() -> None:
    """A preferred answer that is too short is filled up with anything."""
    world = await world_with(8, 8)
    world.bound(pod(5), on=[[0]])
    why = await refusal(world, MEMORY, *units(world, 0, 0b111), *units(world, 1, 0b11))
    assert why == (
        "kubelet chose units of several GPUs of gpu-a (3 of GPU 0, 2 of GPU 1), "
        "but no container is planned on these GPUs"
    )


async def test_memory_of_a_gpu_that_somebody_has_wholly_is_refused() -> None:
    world = await world_with(8, 8)
    await world.run(pod(whole=1, name="greedy"), on=[[1]])
    world.bound(pod(3), on=[[1]])
    assert "GPU 1 of gpu-a that pod default/greedy holds" in await refusal(world, MEMORY, *units(world, 1, 0b111))


async def test_a_whole_gpu_of_which_somebody_has_memory_is_refused_also_after_a_restart() -> None:
    world = await world_with(8, 8)
    await world.run(pod(3, name="small"), on=[[1]])
    await world.settled()
    for _ in range(2):
        assert "GPU 1 of gpu-a that pod default/small holds" in await refusal(world, WHOLE, "GPU-1")
        world.start_plugin()
        await world.begin()


async def test_units_of_an_unhealthy_gpu_are_refused_with_what_it_has() -> None:
    world = await world_with(8, 8)
    world.bound(pod(3), on=[[1]])
    world.deliver()
    world.set_gpus(facts(8, 8, unhealthy={1: "XID 79 (GPU has fallen off the bus)"}))
    why = await refusal(world, MEMORY, *units(world, 1, 0b111))
    assert why == "GPU 1 of gpu-a is unhealthy: XID 79 (GPU has fallen off the bus)"


@pytest.mark.parametrize(
    ("resource", "asked", "sentence"),
    [
        (MEMORY, ["GPU-0-_-17"], "kubelet asks for GPU-0-_-17, which is not a unit of gpu-a"),
        (MEMORY, ["zzzzzzz"], "kubelet asks for zzzzzzz, which is not a unit of gpu-a"),
        (MEMORY, ["x" * 300], f"kubelet asks for {'x' * 80}, which is not a unit of gpu-a"),
        (WHOLE, ["GPU-7"], "kubelet asks for GPU-7, which is not a unit of gpu-a"),
        (WHOLE, ["GPU-0", "GPU-0"], "kubelet asks for the same unit of gpu-a twice"),
        (MEMORY, [], "kubelet asks for no units"),
    ],
)
async def test_what_is_no_unit_of_this_node_is_refused(resource: str, asked: list[str], sentence: str) -> None:
    world = await world_with(8, 8)
    assert sentence in await refusal(world, resource, *asked)
    assert world.plugin.held() == {}


async def test_a_gpu_whose_uuid_is_as_long_as_an_id_of_memory_is_a_gpu_like_any_other() -> None:
    world = World(8)
    world.set_gpus(NodeFacts(NODE, "MiB", Pin.PLUGIN, (Gpu(0, "GPU-100", 8),)))
    await world.begin()
    uid = await world.run(pod(whole=1), on=[[0]])
    assert world.whole(uid) == ["GPU-100"]


async def test_a_pod_nobody_planned_and_for_which_nothing_is_free_hears_who_should_have() -> None:
    world = await world_with(8)
    await world.run(pod(6))
    uid = world.bound(pod(5), planned=False)
    assert not await world.admit(uid)
    assert "devices unavailable" in world.refusals[uid], "kubelet itself sees that"
    uid = world.bound(pod(whole=1), planned=False)
    assert not await world.admit(uid)
    assert (
        "no GPU of gpu-a has 1 GPU free and no plan was made for it; was the pod scheduled without the extender?"
        in world.refusals[uid]
    )


async def test_a_plan_that_is_lost_is_named() -> None:
    world = await world_with(8, 8)
    uid = world.bound(pod(8), on=[[1]])
    await world.run(pod(1), on=[[0]])
    await world.run(pod(1), on=[[1]])
    assert not await world.admit(uid)
    assert (
        "8 MiB were planned on GPU 1 of gpu-a; there is no longer room, and no other GPU has room"
        in (world.refusals[uid])
    )


async def test_what_a_refused_pod_got_already_is_free_when_kubelet_has_been_asked() -> None:
    world = await world_with(8)
    await world.run(pod(4))
    uid = world.bound(pod(3, whole=1), planned=False)
    assert not await world.admit(uid)
    await world.settled()
    assert world.plugin.held() == {"GPU-0": 4}


async def test_what_a_refused_pod_got_already_goes_to_the_next_that_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anybody has said that the refused one has failed; kubelet offers it again."""
    monkeypatch.setattr(podlist, "WAIT_SECONDS", 0.0)
    world = await world_with(8)
    await world.run(pod(4))
    refused, following = world.bound(pod(3, whole=1), planned=False), world.bound(pod(4), on=[[0]])
    world.deliver()
    world.server.away = True
    assert not await world.admit(refused)
    assert await world.admit(following), world.refusals
    assert world.plugin.held() == {"GPU-0": 8}


async def test_without_the_api_server_the_wait_has_an_end_and_nothing_is_made_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No plan known, none to be had, and nothing free beside the plans that are known."""
    monkeypatch.setattr(podlist, "WAIT_SECONDS", 0.01)
    world = await world_with(8)
    planned = world.bound(pod(6), on=[[0]])
    world.deliver()
    world.server.away = True
    stranger = world.bound(pod(5), planned=False)
    assert not await world.admit(stranger)
    assert "gpushare: no GPU of gpu-a has 5 MiB free" in world.refusals[stranger]
    assert world.told(stranger) == {}
    assert await world.admit(planned), "a plan that is known needs no API server"


async def test_a_container_larger_than_kubelet_can_report_is_refused() -> None:
    world = World(60_000)
    world.server.node["status"]["nodeInfo"] = {"kubeletVersion": "v1.36.4"}
    assert await world.plugin._read_kubelet()
    await world.begin()
    uid = world.bound(pod(50_001))
    assert not await world.admit(uid)
    assert (
        "a container of 50001 MiB is more than this kubelet can report; ask for at most 50,000, or pin directly "
        "(--pin=direct)" in world.refusals[uid]
    )
    await world.run(pod(50_000))
    (event,) = world.events.recorded
    assert (event["kind"], event["type"], event["reason"]) == ("Node", "Warning", kubelet_info.COSTLY)
    assert "v1.36.4" in event["message"]
    assert all(gate in event["message"] for gate in ("ResourceHealthStatus ", "ResourceHealthStatusMessage"))


@pytest.mark.parametrize(("version", "unit"), [("v1.35.9", "MiB"), ("v1.36.4", "GiB"), ("", "MiB")])
async def test_other_kubelets_and_units_have_no_such_limit(version: str, unit: Unit) -> None:
    world = World(60_000, unit=unit)
    world.server.node["status"]["nodeInfo"] = {"kubeletVersion": version}
    assert await world.plugin._read_kubelet()
    assert world.plugin.state.most is None
    assert not world.events.recorded


async def test_the_limit_follows_a_kubelet_that_is_replaced_while_the_plugin_runs() -> None:
    """The node object shows the new version, and its publisher tells the limit with the GPUs."""
    world = World(60_000)
    await world.begin()
    world.set_gpus(replace(world.facts, limit=50_000))
    assert world.plugin.state.most == 50_000
    world.set_gpus(replace(world.facts, limit=0))
    assert world.plugin.state.most is None
