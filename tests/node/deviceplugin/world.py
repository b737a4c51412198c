"""A node whose kubelet and API server are models, and the device plugin as it is: no socket, no clock.

kubelet's side is `devcluster.kubelet.device_manager`, its own rules; pods are planned by the real ledger, as the
extender does it. What on a real node happens at the same time happens here step by step, in whatever order a test
chooses: the watch brings news only when it is told to, kubelet takes pods in any order, and `List` may come in the
middle of an Allocate.
"""

import copy
import itertools
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import msgspec

from gpushare.core.annotations import pod_gpus
from gpushare.core.facts import kinds, names, objects, request
from gpushare.core.facts.model import NodeFacts, PodFacts, Refusal, Request, Share, Unit
from gpushare.core.ledger.ledger import Ledger
from gpushare.devcluster.kubelet.device_manager import DeviceManager, Devices, Key, Rejected
from gpushare.kubelet.pb import deviceplugin_pb2 as messages
from gpushare.kubelet.pb.methods import HEALTHY
from gpushare.kubelet.podresources import Listed, NoAnswer
from gpushare.kubelet.unit_ids import Ids, Reader
from gpushare.node.deviceplugin.environment import Visible
from gpushare.node.deviceplugin.plugin import Plugin
from gpushare.node.pods import NodePods, Pod
from tests.node.deviceplugin.made import NODE, Object, facts, pod
from tests.node.deviceplugin.standins import Direct, Events, Server

RESOURCES = (names.GPU_MEM, names.GPU_COUNT)


class World:
    def __init__(
        self, *totals: int, seed: int = 0, unit: Unit = "MiB", asks: bool = True, visible: Visible = "uuid"
    ) -> None:
        self.facts = facts(*totals, unit=unit)
        self.dice = random.Random(seed)
        self.server, self.events = Server(self.dice), Events()
        self.ledger, self.now = Ledger(), 0.0
        self.ledger.set_node(self.facts)
        self.server.tells = [self._observe, lambda uid: self.news.append((uid, self._copy(uid)))]
        self.news: list[tuple[str, Object | None]] = []  # what the watch has not brought yet
        self.numbers = itertools.count()
        self.refusals: dict[str, str] = {}  # why pods were rejected, by uid
        self.taken: set[str] = set()  # pods kubelet has admitted
        self.manager = DeviceManager(self.active, self.dice)
        self.kubelet_answers = True
        self.visible = visible
        self.asks = asks  # kubelet, what it shall take
        self.start_plugin()

    # The plugin

    def start_plugin(self) -> None:
        """Its pods are listed anew; `correct` has to be awaited."""
        self.news.clear()
        self.watched = NodePods()
        for uid in self.server.pods:
            self.watched.upsert(msgspec.convert(self.server.pods[uid], Pod))
        self.plugin = Plugin(
            node=NODE, unit=self.facts.unit, api=self.server, pods=self.watched, events=self.events,  # type: ignore[arg-type]
            visible=self.visible,
        )  # fmt: skip
        self.plugin.reconciler.ask = self.pod_resources
        self.plugin.set_gpus(self.facts)
        self.direct = {resource: Direct(self.plugin.services[resource]) for resource in RESOURCES}
        for resource, direct in self.direct.items():
            self.manager.connected(resource, direct, prefers=self.asks)

    def start_kubelet(self, checkpoint: bytes) -> None:
        """It knows what an earlier one wrote down; the plugin has to list again."""
        self.manager = DeviceManager(self.active, self.dice, checkpoint)
        for resource, direct in self.direct.items():
            self.manager.connected(resource, direct, prefers=self.asks)
        self.plugin.state.kubelet_restarted()

    def meanwhile(self, happens: Callable[[], Awaitable[None]] | None) -> None:
        """What happens when kubelet has chosen units and asks for them."""
        for direct in self.direct.values():
            direct.meanwhile = happens

    async def begin(self) -> None:
        """What the plugin does before it registers, and its first list."""
        await self.plugin.reconciler.correct()
        await self.relist()

    async def relist(self) -> None:
        for resource in RESOURCES:
            self.manager.listed(resource, await self.devices(resource))

    async def devices(self, resource: str) -> dict[str, bool]:
        """What the plugin lists, and whether it is healthy."""
        async for body in self.plugin.services[resource].lists():
            return {d.ID: d.health == HEALTHY for d in messages.ListAndWatchResponse.FromString(body).devices}
        raise AssertionError("the list never ends")

    def set_gpus(self, now: NodeFacts) -> None:
        self.facts = now
        self.ledger.set_node(now)
        self.plugin.set_gpus(now)

    async def pod_resources(self) -> list[Listed]:
        if not self.kubelet_answers:
            raise NoAnswer("unavailable: no such socket")
        return self.list_pod_resources()

    def list_pod_resources(self) -> list[Listed]:
        """Anybody may ask kubelet this, at any time."""
        known = [self.server.pods[uid] for uid in self.active() if uid in self.server.pods]
        return [
            Listed(pod["metadata"]["namespace"], pod["metadata"]["name"], container, kinds.BY_RESOURCE[resource], ids)
            for pod, container, devices in self.manager.pod_resources(known)
            for resource, ids in devices.items()
        ]

    async def settled(self) -> None:
        """All is quiet: the watch brings everything, and the plugin makes true what is not."""
        for _ in range(3):
            self.deliver()
            self.plugin.reconciler.due()
            await self.plugin.reconciler.once()
        self.deliver()
        await self.relist()

    # Pods

    def active(self) -> list[str]:
        return [uid for uid, pod in self.server.pods.items() if pod["status"]["phase"] not in objects.FINISHED]

    def seen(self, uid: str) -> PodFacts:
        return request.facts(msgspec.convert(self.server.pods[uid], objects.Pod), self.facts.unit)

    def asked(self, made: Object) -> tuple[Share, ...]:
        """The shares of such a pod, in the order in which kubelet starts its containers."""
        asked = request.parse(msgspec.convert(made, objects.Pod), self.facts.unit)
        assert isinstance(asked, Request)
        return asked.shares

    def request_of(self, uid: str) -> Request:
        asked = self.seen(uid).request
        assert isinstance(asked, Request)
        return asked

    def bind(self, made: Object, *, planned: bool = True, on: Sequence[Sequence[int]] | None = None) -> str | None:
        """A pod is created and bound here; None if the ledger sees no room. `on`: by share, the GPUs by position."""
        number = next(self.numbers)
        made = copy.deepcopy(made)
        made["metadata"] |= {"uid": f"uid-{number}", "name": made["metadata"]["name"] or f"pod-{number}"}
        uid, notes = f"uid-{number}", made["metadata"]["annotations"]
        wide = request.facts(msgspec.convert(made, objects.Pod), self.facts.unit)
        if planned and isinstance(wide.request, Request):
            places = tuple(map(tuple, on)) if on is not None else self.ledger.reserve(wide, NODE, "binpack")
            if isinstance(places, Refusal):
                return None
            notes |= pod_gpus.write(wide.request, self.facts, places, extender="0a1b2c3d", nanoseconds=1)
        made["spec"]["nodeName"] = NODE
        self.server.pods[uid] = made
        if planned and on is None:
            self.ledger.confirm(self.seen(uid))
        self.server.changed(uid)
        return uid

    def deliver(self, count: int | None = None) -> None:
        """The watch brings what it has not brought yet."""
        for uid, shown in self.news[:count]:
            if shown is None:
                self.watched._forget(uid)
            else:
                self.watched.upsert(msgspec.convert(shown, Pod))
        del self.news[:count]

    async def admit(self, uid: str, running: Sequence[str] = ()) -> bool:
        """kubelet takes a pod, or rejects it."""
        made = self.server.pods[uid]
        try:
            await self.manager.admit(made, running)
        except Rejected as rejected:
            self.refusals[uid] = str(rejected)
            self.set_status(uid, {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": str(rejected)})
            return False
        finally:
            await self.relist()
        self.taken.add(uid)
        started = [{"name": c["name"], "state": {"running": {}}} for c in made["spec"]["containers"]]
        before = [{"name": c["name"], "state": {"terminated": {}}} for c in made["spec"]["initContainers"]]
        self.set_status(uid, {"phase": "Running", "containerStatuses": started, "initContainerStatuses": before})
        return True

    def bound(self, made: Object, **how: Any) -> str:
        """For which there is room."""
        uid = self.bind(made, **how)
        assert uid is not None
        return uid

    async def run(self, made: Object, **how: Any) -> str:
        """Bound, seen, taken."""
        uid = self.bound(made, **how)
        self.deliver()
        assert await self.admit(uid), self.refusals[uid]
        return uid

    def end(self, uid: str) -> None:
        self.set_status(uid, {"phase": "Succeeded"})

    def delete(self, uid: str) -> None:
        del self.server.pods[uid]
        self.taken.discard(uid)
        self.server.changed(uid)

    def set_status(self, uid: str, status: Object) -> None:
        self.server.pods[uid]["status"] = status
        self.server.changed(uid)

    def waiting(self) -> list[str]:
        """Bound, and not taken yet."""
        return [uid for uid in self.active() if uid not in self.taken]

    def running(self) -> list[str]:
        """Taken, and not ended yet."""
        return [uid for uid in self.active() if uid in self.taken]

    def given_before(self, uid: str, container: str, ids: list[str]) -> None:
        """By another plugin: kubelet has it in its checkpoint, and the container runs."""
        self.manager.given[Key(uid, container, names.GPU_MEM)] = Devices(ids, {})
        self.taken.add(uid)
        self.set_status(uid, {"phase": "Running"})

    # What is true

    def units(self, uid: str, container: str) -> dict[str, int]:
        """By GPU, how many units of memory a container has."""
        return {u: bits.bit_count() for u, bits in self.bits(self._ids(uid, container, names.GPU_MEM)).items()}

    def whole(self, uid: str, container: str = "whole") -> list[str]:
        return sorted(self._ids(uid, container, names.GPU_COUNT))

    def used(self) -> dict[str, int]:
        """Units of memory that pods have, by GPU, as kubelet counts them."""
        taken: dict[str, int] = {}
        for key, given in self.manager.given.items():
            if key.resource == names.GPU_MEM and key.uid in self.active():
                for uuid, bits in self.bits(given.ids).items():
                    taken[uuid] = taken.get(uuid, 0) | bits
        return {uuid: bits.bit_count() for uuid, bits in taken.items()}

    def told(self, uid: str, container: str = "main-0") -> dict[str, str]:
        return self.manager.environment(uid, container)

    def notes(self, uid: str) -> dict[str, str]:
        found: dict[str, str] = self.server.pods[uid]["metadata"]["annotations"]
        return found

    def _ids(self, uid: str, container: str, resource: str) -> list[str]:
        return [
            name
            for key, given in self.manager.given.items()
            if key == (uid, container, resource)
            for name in given.ids
        ]  # fmt: skip

    def bits(self, ids: Iterable[str]) -> dict[str, int]:
        catalog = self.plugin.state.catalog
        return Reader(Ids.of(ids), catalog.keys).all(catalog.totals)

    def _copy(self, uid: str) -> Object | None:
        return copy.deepcopy(self.server.pods.get(uid))

    def _observe(self, uid: str) -> None:
        self.now += 1.0
        if uid in self.server.pods:
            self.ledger.observe(self.seen(uid), self.now)
        else:
            self.ledger.forget(uid)
        self.ledger.expire(self.now)


async def world_with(*totals: int, seed: int = 0) -> World:
    """A node with GPUs of these sizes, whose plugin kubelet knows."""
    world = World(*totals, seed=seed)
    await world.begin()
    return world


async def swapped(world: World) -> tuple[str, str]:
    """Two equal pods, planned on GPU 0 and GPU 1; kubelet takes the second one first."""
    one, two = world.bound(pod(6), on=[[0]]), world.bound(pod(6), on=[[1]])
    world.deliver()
    assert await world.admit(two)
    assert await world.admit(one)
    return one, two
