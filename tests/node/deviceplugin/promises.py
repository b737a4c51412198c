"""What is true of a node whatever has happened there, each as a function that finds it or fails. For `test_machine`."""

from collections.abc import Collection

from gpushare.core.annotations import pod_gpus
from gpushare.core.facts import names
from gpushare.core.facts.kinds import WHOLE
from gpushare.core.facts.model import Request, Role, Share
from gpushare.devcluster.kubelet.device_manager import Devices, Key
from tests.node.deviceplugin.world import World


def given(world: World) -> list[tuple[Key, Devices]]:
    """What pods that have not ended hold, as kubelet has it."""
    active = set(world.active())
    return [(key, devices) for key, devices in world.manager.given.items() if key.uid in active]


def no_unit_is_held_twice(world: World) -> None:
    """Only units of init containers may be another container's as healthy, and then one of the same pod."""
    holders: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for key, devices in given(world):
        container = "" if key.container.startswith(("init", "whole-init")) else key.container
        for name in devices.ids:
            holders.setdefault((key.resource, name), set()).add((key.uid, container))
    for unit, who in holders.items():
        assert len({uid for uid, _ in who}) == 1, (unit, who)
        assert len({container for _, container in who if container}) <= 1, (unit, who)


def a_whole_gpu_is_nobody_elses(world: World) -> None:
    whole = {name for key, devices in given(world) if key.resource == names.GPU_COUNT for name in devices.ids}
    for key, devices in given(world) if whole else ():
        if key.resource == names.GPU_MEM:
            assert not whole & set(world.bits(devices.ids)), (key, whole)


def each_container_is_where_it_is_told_to_be(world: World) -> None:
    """All its units are on the GPUs it sees, as many on each."""
    for key, devices in given(world):
        if key.uid not in world.taken:
            continue
        told = sorted(devices.environment[names.VISIBLE_DEVICES].split(","))
        if key.resource == names.GPU_COUNT:
            assert told == sorted(devices.ids)
        else:
            counts = {uuid: bits.bit_count() for uuid, bits in world.bits(devices.ids).items()}
            assert told == sorted(counts)
            assert len(set(counts.values())) == 1, counts


def a_refusal_is_explained(why: str) -> None:
    """By us in a sentence, or by kubelet, which did not even ask."""
    ours = "gpushare: " in why and why.endswith("which is unexpected")
    assert ours or "devices unavailable" in why or "healthy" in why, why


def annotations_are_true(world: World, unplanned: Collection[str]) -> None:
    """Of pods kubelet has taken. `unplanned`: those that were bound by hand."""
    for uid in world.running():
        seen = world.seen(uid)
        assert isinstance(seen.request, Request)
        lasting = [share for share in seen.request.shares if share.role is not Role.INIT]
        if not lasting or (unplanned and any(len(_gpus(world, uid, share)) != share.gpus for share in lasting)):
            # kubelet never says what init containers hold. A pod bound by hand may get what was planned for a split
            # one of its amount: no annotation can say that, and such a pod counts on every GPU.
            continue
        found = pod_gpus.planned(seen, world.facts)
        assert found is not None, (world.notes(uid), given(world))
        for share, places in zip(*found, strict=True):
            if share.role is not Role.INIT:
                said = sorted(world.facts.gpus[at].uuid for at in places)
                assert said == _gpus(world, uid, share), (uid, share.container, world.notes(uid))
        assert world.notes(uid)[names.ALIYUN_ASSIGNED] == "true"
        assert _charged(world, uid) == _kept(world, uid), uid


def sums_are_as_planned(world: World) -> None:
    """Whoever got what: on each GPU is held what was planned there. All pods must have been taken."""
    planned: dict[str, int] = {}
    real: dict[str, int] = {}
    for uid in world.running():
        for said, sums in ((_charged(world, uid), planned), (_kept(world, uid), real)):
            for uuid, amount in said.items():
                sums[uuid] = sums.get(uuid, 0) + amount
    assert planned == real


def the_plugin_knows_what_is_held(world: World) -> None:
    """No more and no less, of each GPU. Nothing may be under way."""
    held: dict[str, int] = {}
    for uid in world.running():
        for uuid, amount in _kept(world, uid).items():
            held[uuid] = held.get(uuid, 0) + amount
    assert world.plugin.held() == held


async def what_is_held_is_not_withdrawn(world: World) -> None:
    """Of an unhealthy GPU only what is free is listed unhealthy, or the node would seem to have less than its pods
    use."""
    healthy = [name for name, healthy in (await world.devices(names.GPU_MEM)).items() if healthy]
    listed = {uuid: bits.bit_count() for uuid, bits in world.bits(healthy).items()}
    for uuid, held in world.used().items():
        assert listed.get(uuid, 0) >= held, (uuid, listed, held)
    listed_whole = await world.devices(names.GPU_COUNT)
    for key, devices in given(world):
        if key.resource == names.GPU_COUNT:
            assert all(listed_whole[name] for name in devices.ids), key


def plans_fit(world: World) -> bool:
    """Whether what pods have, and what the annotations of the others say, fits the GPUs side by side."""
    free = {gpu.uuid: gpu.total for gpu in world.facts.gpus}
    for uid in world.active():
        taken = uid in world.taken
        if not taken and pod_gpus.read(world.seen(uid), world.facts) is None:
            return False
        for uuid, amount in (_kept if taken else _charged)(world, uid).items():
            free[uuid] -= amount
    return all(amount >= 0 for amount in free.values())


def _gpus(world: World, uid: str, share: Share) -> list[str]:
    return world.whole(uid, share.container) if share.kind is WHOLE else sorted(world.units(uid, share.container))


def _charged(world: World, uid: str) -> dict[str, int]:
    """What the ledger charges for a pod, by GPU."""
    read = pod_gpus.read(world.seen(uid), world.facts) or ()
    return {world.facts.gpus[at].uuid: amount for at, amount, _ in read}


def _kept(world: World, uid: str) -> dict[str, int]:
    """What kubelet keeps for it."""
    kept: dict[str, int] = {}
    for key, devices in world.manager.given.items():
        if key.uid == uid and key.resource == names.GPU_MEM:
            for uuid, bits in world.bits(devices.ids).items():
                kept[uuid] = kept.get(uuid, 0) | bits
        elif key.uid == uid:
            kept |= {gpu.uuid: (1 << gpu.total) - 1 for gpu in world.facts.gpus if gpu.uuid in devices.ids}
    return {uuid: bits.bit_count() for uuid, bits in kept.items()}
