"""An accountant of its own: what every pod really holds on every GPU, known from the cluster's objects alone.

It writes down each binding at the moment the API server takes it, in the unit in which the node counted then, and
decides nothing by the extender's code. It finds a GPU that was sold twice, a binding that says otherwise than the
pod's spec, and an extender that thinks more is free than there is, or less for ever.
"""

import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gpushare.core.facts import names
from tests.adversary import intree
from tests.adversary.scheduler import ENDED, is_bound
from tests.adversary.server import Object, Server

MIB_IN = {"MiB": 1, "GiB": 1024}
COUNTS_GPUS = (names.GPU_COUNT, names.NVIDIA_GPU, names.MPS_GPU)
MIB_ABOVE = 1024  # units; a GPU that counts more does not count GiB


class Wrong(AssertionError):
    """A promise is broken. `kind` says which, so that a shorter story can be known to show the same."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


class Card(NamedTuple):
    """A GPU as its node publishes it."""

    uuid: str
    total: int
    healthy: bool


class Published(NamedTuple):
    """A node as it stands in the cluster. `plain`: nothing about it contradicts itself."""

    unit: str
    pin: str
    ready: bool
    cards: dict[int, Card]
    plain: bool
    slots: int = 0  # MPS slots of each GPU
    whole: bool = False  # it sells whole GPUs by NVIDIA's name, too


class Part(NamedTuple):
    """What one container holds on one GPU for the pod's whole life."""

    gpu: int
    units: int
    unit: str
    whole: bool
    slots: int = 0

    def mib(self) -> int:
        return self.units * MIB_IN[self.unit]

    def at_most(self, unit: str, total: int, largest: int) -> int:
        """The most that may be counted for it, rounded up by itself. What could as well be GiB may be taken for that:
        nobody asks for so few MiB."""
        if self.whole or (unit == "GiB" and self.unit == "MiB" and self.units <= largest):
            return total
        return -(-self.mib() // MIB_IN[unit])


@dataclass
class Held:
    """One pod. `unlocated`: its GPUs are not known, so the extender may count it anywhere."""

    node: str
    parts: list[Part] = field(default_factory=list)
    unlocated: bool = False
    pin: str = ""  # of the node at that time


def published(node: Object, listed: str = "") -> Published | None:
    """What a node says of its GPUs; `listed` are unhealthy ones by a ConfigMap. None: it shares none."""
    status = node["status"]
    memory, count = (intree.number(status["capacity"].get(r, 0)) for r in (names.GPU_MEM, names.GPU_COUNT))
    offered = intree.number(status["allocatable"].get(names.GPU_MEM, 0))
    taken = intree.number(status["allocatable"].get(names.NVIDIA_GPU, 0))
    unhealthy = {int(word) for word in listed.split(",") if word}
    said = node["metadata"].get("annotations", {}).get(names.NODE_GPUS)
    if said is None:
        if not count:
            return None
        each = memory // count
        cards = {i: Card("", each, i not in unhealthy) for i in range(count)}
        return Published("MiB" if each > MIB_ABOVE else "GiB", "aliyun", bool(offered) and not taken, cards, True)
    told = json.loads(said)
    cards = {g["i"]: Card(g["uuid"], g["total"], g["ok"] and g["i"] not in unhealthy) for g in told["gpus"]}
    well = sum(g["total"] for g in told["gpus"] if g["ok"])
    plain = not memory or well <= memory <= sum(g["total"] for g in told["gpus"])
    whole = told.get("nvidia") == "whole"
    ready = told["state"] == "ready" and bool(offered) and taken <= len(cards) * whole
    return Published(told["unit"], told["pin"], ready, cards, plain, told.get("slots", 0), whole)


class Accountant:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.held: dict[str, Held] = {}  # by uid, also of pods that are gone: a restore may bring them back
        self.tampered: set[str] = set()  # uids whose guarded annotations somebody else wrote
        self.excused = 0.0  # until then the extender cannot know what a restore has changed
        self.checks = 0
        self._read: dict[str, tuple[Object, str, Published | None]] = {}  # by node: what was read of which object

    def node(self, name: str) -> Published | None:
        node = self.server.nodes.get(name)
        if node is None:
            return None
        config_map = self.server.kind("configmaps").get(f"kube-system/{names.UNHEALTHY_PREFIX}{name}", {})
        listed = config_map.get("data", {}).get(names.UNHEALTHY_KEY, "")
        read = self._read.get(name)
        if read is None or read[0] is not node or read[1] != listed:
            read = self._read[name] = (node, listed, published(node, listed))
        return read[2]

    # Bindings

    def bound(self, pod: Object, node: str) -> None:
        """The API server has just taken a binding of the extender's."""
        there, notes = self.node(node), pod["metadata"]["annotations"]
        informed = self.server.has_told() and self.server.clock() >= self.excused
        if there is None or names.ALLOCATION not in notes:
            self.held[pod["metadata"]["uid"]] = Held(node, unlocated=True)
            return
        unit = there.unit if informed else "MiB" if int(notes[names.ALIYUN_DEV]) > MIB_ABOVE else "GiB"
        parts = _parts(pod, json.loads(notes[names.ALLOCATION]), unit)
        self.held[pod["metadata"]["uid"]] = Held(node, parts, pin=there.pin)
        if informed:
            self._check_binding(pod, there, parts)
            self._check_sold(pod, node, there, parts)

    def _check_binding(self, pod: Object, there: Published, parts: list[Part]) -> None:
        """The annotations say what the spec asks, of GPUs that are there and well."""
        self.checks += 1
        name, notes = pod["metadata"]["name"], pod["metadata"]["annotations"]
        for part in parts:
            card = there.cards.get(part.gpu)
            if card is None or not card.healthy:
                raise Wrong("unhealthy", f"{name} was bound to GPU {part.gpu}, which is not there or not healthy")
        said = json.loads(notes[names.ALLOCATION])
        for position, container in enumerate(pod["spec"]["containers"]):
            given = said.get(str(position), {})
            memory = intree.asks(container, names.GPU_MEM)
            if memory and sum(given.values()) != memory:
                raise Wrong("spec", f"{name}: container {position} asks {memory} and was given {given}")
            wanted = sum(intree.asks(container, resource) for resource in COUNTS_GPUS) if is_ours(container) else 0
            if len(given) != wanted and not memory:
                raise Wrong("spec", f"{name}: container {position} asks {wanted} GPUs and was given {given}")
            if any(not 0 < units <= there.cards[int(gpu)].total for gpu, units in given.items()):
                raise Wrong("spec", f"{name}: container {position} was given {given}")
            self._check_visible(pod, there, position, container, given)

    def _check_visible(self, pod: Object, there: Published, position: int, container: Object, given: Object) -> None:
        if there.pin == "direct" and given:
            key = visible_key(container)
            seen = set(pod["metadata"]["annotations"].get(key, "").split(","))
            if seen != {there.cards[int(index)].uuid for index in given}:
                raise Wrong("visible", f"{pod['metadata']['name']}: container {position} sees {seen}, holds {given}")

    def _check_sold(self, pod: Object, node: str, there: Published, parts: list[Part]) -> None:
        """No GPU that this binding touches has given out more than it has."""
        for gpu in {part.gpu for part in parts}:
            card = there.cards[gpu]
            size = card.total * MIB_IN[there.unit]
            holders = {key: mine for key, mine in self.on_gpu(node, gpu).items() if mine}
            slots = sum(part.slots for mine in holders.values() for part in mine)
            if slots > there.slots and any(part.slots for part in parts if part.gpu == gpu):
                raise Wrong("sold twice", f"{node} GPU {gpu} has {there.slots} slots, {slots} are sold: {holders}")
            alone = any(part.whole for mine in holders.values() for part in mine)
            sold = sum(part.mib() for mine in holders.values() for part in mine)
            if (alone and len(holders) > 1) or (not alone and sold > size):
                said = {key: [(part.units, part.unit) for part in mine] for key, mine in holders.items()}
                raise Wrong(
                    "sold twice",
                    f"{node} GPU {gpu} has {size} MiB; with {pod['metadata']['name']} {sold} are sold: {said}",
                )

    def on_gpu(self, node: str, gpu: int) -> dict[str, list[Part]]:
        """By pod, what is surely held on a GPU."""
        return {
            key: [part for part in held.parts if part.gpu == gpu]
            for key, pod, held in self.living(node)
            if pod["metadata"]["uid"] not in self.tampered
        }

    def living(self, node: str) -> list[tuple[str, Object, Held]]:
        """The pods that hold something on a node, whoever bound them."""
        return [
            (key, pod, self._held(pod, node))
            for key, pod in self.server.pods.items()
            if pod["spec"].get("nodeName") == node and pod["status"].get("phase") not in ENDED and gpu_containers(pod)
        ]

    def _held(self, pod: Object, node: str) -> Held:
        held = self.held.get(pod["metadata"]["uid"])
        if held is not None and held.node == node:
            return held
        return Held(node, unlocated=True)  # bound by hand

    def is_vague(self, pod: Object, held: Held, there: Published) -> bool:
        """Whether nobody can tell where this pod counts, so that it may count on every GPU."""
        if pod["metadata"]["uid"] in self.tampered:
            return True
        if held.unlocated:
            return not (there.pin == "direct" and sees_nothing(pod))
        if held.pin != there.pin and pod["spec"].get("initContainers"):
            return True  # each way of pinning has its own idea of where an init container may be
        return any(part.gpu not in there.cards for part in held.parts)

    # What the extender says is free

    def check_free(self, name: str, seen: dict[int, tuple[int, int, int]] | None, *, settled: bool) -> None:
        """`seen`: used, total and used slots of each GPU, by the extender. `settled`: nothing of it is only for a
        moment."""
        there = self.node(name)
        if there is None or not there.plain:
            return
        self.checks += 1
        if seen is None or {i: card.total for i, card in there.cards.items()} != {
            i: t for i, (_, t, _) in seen.items()
        }:
            raise Wrong("node", f"{name}: the extender sees {seen}, published are {there.cards}")
        for gpu in there.cards:
            least, most = self.used(name, there, gpu)
            used, total, slots = seen[gpu]
            said = f"{name} GPU {gpu}: the extender counts {used} of {total} {there.unit}"
            if there.slots and slots < (held_slots := self.used_slots(name, there, gpu)[0]):
                raise Wrong("too free", f"{said} and {slots} slots, {held_slots} are held: {self._who(name, gpu)}")
            if used < min(least, total):
                raise Wrong("too free", f"{said}, {least} are held: {self._who(name, gpu)}")
            if settled and used > min(most, total):
                raise Wrong("closed", f"{said}, {most} are held: {self._who(name, gpu)}")

    def used(self, name: str, there: Published, gpu: int) -> tuple[int, int]:
        """What is surely held on a GPU, and the most that may be counted there, in the node's unit."""
        least = most = 0
        total, largest = there.cards[gpu].total, max(card.total for card in there.cards.values())
        for _, pod, held in self.living(name):
            if self.is_vague(pod, held, there):
                most += total
                continue
            mine = [part for part in held.parts if part.gpu == gpu]
            most += sum(part.at_most(there.unit, total, largest) for part in mine)
            if any(part.whole for part in mine):
                least += total
            else:
                least += -(-sum(part.mib() for part in mine) // MIB_IN[there.unit])
        return least, most

    def used_slots(self, name: str, there: Published, gpu: int) -> tuple[int, int]:
        """The MPS slots that are surely held on a GPU, and the most that may be counted there. Nobody writes down those
        of init containers."""
        least = most = 0
        for _, pod, held in self.living(name):
            if not self.is_vague(pod, held, there):
                least += sum(part.slots for part in held.parts if part.gpu == gpu)
            most += sum(intree.asks(c, names.MPS_GPU) > 0 for c in pod["spec"].get("initContainers", []))
        return least, least + most

    def _who(self, node: str, gpu: int) -> dict[str, Any]:
        return {key: [(p.units, p.unit) for p in held.parts if p.gpu == gpu] for key, _, held in self.living(node)}


def _parts(pod: Object, allocation: dict[str, dict[str, int]], unit: str) -> list[Part]:
    apps = pod["spec"]["containers"]
    containers, parts = [*apps, *pod["spec"].get("initContainers", [])], []
    for position, given in allocation.items():
        container, stays = containers[int(position)], int(position) < len(apps)
        stays = stays or container.get("restartPolicy") == "Always"
        whole = any(intree.asks(container, resource) > 0 for resource in (names.GPU_COUNT, names.NVIDIA_GPU))
        slots = int(stays and intree.asks(container, names.MPS_GPU) > 0)
        parts += [Part(int(gpu), units, unit, whole, slots) for gpu, units in given.items()]
    return parts


def visible_key(container: Object) -> str:
    """The annotation that a container's env refers to, which our admission policy wrote; empty: none."""
    for entry in reversed(container.get("env", [])):
        path = entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
        if entry["name"] == names.VISIBLE_DEVICES:
            key = path.removeprefix("metadata.annotations['").removesuffix("']")
            return str(key) if key.startswith(names.VISIBLE_PREFIX) else ""
    return ""


def gpu_containers(pod: Object) -> list[Object]:
    containers = [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
    return [c for c in containers if is_ours(c) and any(intree.asks(c, r) for r in (names.GPU_MEM, *COUNTS_GPUS))]


def is_ours(container: Object) -> bool:
    """Whether it asks us: by NVIDIA's name only with the env of our admission policy."""
    return not intree.asks(container, names.NVIDIA_GPU) or bool(visible_key(container))


def sees_nothing(pod: Object) -> bool:
    """Bound by hand with the env of our admission policy: every container's env is empty."""
    notes = pod["metadata"].get("annotations", {})
    keys = [visible_key(container) for container in gpu_containers(pod)]
    return is_bound(pod) and all(key and key not in notes for key in keys)
