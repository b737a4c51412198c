"""Which devices each container gets: the rules of the device manager of kubelet 1.36, with its faults.

Where kubelet's choice is arbitrary, `dice` decide. How plugins are reached is not decided here: `sockets` speaks gRPC
to them as kubelet does, and a test may call a plugin directly.
"""

import random
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from gpushare.core.facts import units
from gpushare.devcluster.apiserver.status import Object

UNAVAILABLE: Final = "requested number of devices unavailable for {resource}. Requested: {size}, Available: {free}"
UNREGISTERED: Final = "cannot allocate unregistered device {resource}"
NONE_HEALTHY: Final = "no healthy devices present; cannot allocate unhealthy devices {resource}"
NO_LONGER_HEALTHY: Final = (
    "previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}"
)
UNEXPECTED: Final = "Allocate failed due to {why}, which is unexpected"
REASON: Final = "UnexpectedAdmissionError"


class PluginError(Exception):
    """A plugin refused, or could not be reached."""


class Rejected(Exception):
    """The pod is not admitted: it fails with this message and the reason `REASON`."""


class DevicePlugin(Protocol):
    """One resource's plugin. Both raise PluginError."""

    async def prefer(self, available: list[str], must: list[str], size: int) -> list[str]: ...

    async def allocate(self, ids: list[str]) -> dict[str, str]:
        """The environment of the container."""


class Key(NamedTuple):
    uid: str
    container: str
    resource: str


class Devices(msgspec.Struct):
    """What a container has of one resource, and the env that the plugin answered."""

    ids: list[str]
    environment: dict[str, str]


class Entry(msgspec.Struct):
    """One line of the checkpoint."""

    key: Key
    devices: Devices


class Checkpoint(msgspec.Struct):
    entries: list[Entry] = msgspec.field(default_factory=list)
    resources: list[str] = msgspec.field(default_factory=list)


class DeviceManager:
    """`active`: the uids of the pods that have not ended. `checkpoint`: of the kubelet before a restart."""

    def __init__(
        self, active: Callable[[], Collection[str]], dice: random.Random, checkpoint: bytes | None = None
    ) -> None:
        self.given: dict[Key, Devices] = {}
        self._active, self._dice = active, dice
        self._plugins: dict[str, DevicePlugin] = {}
        self._prefers: dict[str, bool] = {}
        self._healthy: dict[str, set[str]] = {}
        self._unhealthy: dict[str, set[str]] = {}
        self._marked: dict[str, set[str]] = {}  # devices in use, by kubelet's own marks
        self._reusable: dict[str, set[str]] = {}  # by resource: devices of finished init containers of one pod
        self._reusable_of = ""
        for entry in self._read(checkpoint):
            self.given[entry.key] = entry.devices
        self._marked = self._in_use()

    def _read(self, checkpoint: bytes | None) -> list[Entry]:
        if checkpoint is None:
            return []
        read = msgspec.json.decode(checkpoint, type=Checkpoint)
        for resource in read.resources:
            self._healthy[resource], self._unhealthy[resource] = set(), set()
        return read.entries

    # Plugins

    def connected(self, resource: str, plugin: DevicePlugin, *, prefers: bool) -> None:
        self._plugins[resource], self._prefers[resource] = plugin, prefers

    def disconnected(self, resource: str) -> None:
        """All its devices become unhealthy."""
        if resource in self._plugins:
            self._unhealthy.setdefault(resource, set()).update(self._healthy.get(resource, ()))
            self._healthy[resource] = set()

    def listed(self, resource: str, devices: Mapping[str, bool]) -> None:
        """The complete list of a plugin: whether each device is healthy."""
        self._healthy[resource] = {name for name, healthy in devices.items() if healthy}
        self._unhealthy[resource] = {name for name, healthy in devices.items() if not healthy}

    def capacity(self) -> dict[str, int]:
        return {name: len(healthy) + len(self._unhealthy[name]) for name, healthy in self._healthy.items()}

    def allocatable(self) -> dict[str, int]:
        return {name: len(healthy) for name, healthy in self._healthy.items()}

    def checkpoint(self) -> bytes:
        entries = [Entry(key, devices) for key, devices in self.given.items()]
        return msgspec.json.encode(Checkpoint(entries, list(self._healthy)))

    # Pods

    async def admit(self, pod: Object, running: Collection[str] = ()) -> None:
        """Gives each container of a pod its devices. `running`: containers that a restarted kubelet finds running."""
        uid = pod["metadata"]["uid"]
        try:
            for container in pod["spec"].get("initContainers") or ():
                await self._container(uid, container, running, init=True)
            for container in pod["spec"].get("containers") or ():
                await self._container(uid, container, running, init=False)
        except PluginError as error:
            raise Rejected(UNEXPECTED.format(why=error)) from None

    def environment(self, uid: str, container: str) -> dict[str, str]:
        """The env that plugins answered for a container. The env of its own spec wins over it."""
        env: dict[str, str] = {}
        for key, devices in self.given.items():
            if key[:2] == (uid, container):
                env |= devices.environment
        return env

    def pod_resources(self, pods: Iterable[Object]) -> list[tuple[Object, str, dict[str, list[str]]]]:
        """The devices of each pod and container, by resource, without ordinary init containers. This has a side effect,
        as in kubelet: the devices of an Allocate in progress may be given out again."""
        self._collect_garbage()
        return [
            (pod, name, {key.resource: devices.ids for key, devices in self.given.items() if key[:2] == (uid, name)})
            for pod in pods
            if (uid := pod["metadata"]["uid"])
            for name in _lasting(pod["spec"])
        ]

    async def _container(self, uid: str, container: Object, running: Collection[str], *, init: bool) -> None:
        if self._reusable_of != uid:
            self._reusable, self._reusable_of = {}, uid
        await self._allocate(uid, container, running)
        reusable = init and container.get("restartPolicy") != "Always"
        for key, devices in self.given.items():
            if key[:2] == (uid, container["name"]):
                pool = self._reusable.setdefault(key.resource, set())
                if reusable:
                    pool.update(devices.ids)
                else:
                    pool.difference_update(devices.ids)

    async def _allocate(self, uid: str, container: Object, running: Collection[str]) -> None:
        limits = (container.get("resources") or {}).get("limits") or {}
        wanted = [name for name in limits if name in self._healthy or name in self._marked]
        self._dice.shuffle(wanted)
        if wanted:
            self._collect_garbage()
        for resource in wanted:
            key, size = Key(uid, container["name"], resource), units.number(limits, resource)
            chosen = await self._choose(key, size, running)
            if not chosen:
                continue
            if resource not in self._plugins:
                self._marked = self._in_use()
                raise PluginError(f"unknown Device Plugin {resource}")
            try:
                env = await self._plugins[resource].allocate(self._shuffled(chosen))
            except PluginError:
                self._marked = self._in_use()
                raise
            self.given[key] = Devices(sorted(chosen), env)

    async def _choose(self, key: Key, size: int, running: Collection[str]) -> set[str]:
        """The devices to ask the plugin for; empty if the container has them already."""
        resource = key.resource
        before = self.given.get(key)
        if key.container in running:
            return set()
        if resource not in self._healthy:
            raise PluginError(UNREGISTERED.format(resource=resource))
        if not self._healthy[resource]:
            raise PluginError(NONE_HEALTHY.format(resource=resource))
        if before is not None and not self._healthy[resource].issuperset(before.ids):
            raise PluginError(NO_LONGER_HEALTHY.format(resource=resource))
        if before is not None or not size:
            return set()
        chosen: set[str] = set()
        if self._take(resource, chosen, self._reusable.get(resource, set()), size):
            return chosen
        free = self._healthy[resource] - self._marked.get(resource, set())
        if len(free) < size - len(chosen):
            raise PluginError(UNAVAILABLE.format(resource=resource, size=size - len(chosen), free=len(free)))
        if self._prefers.get(resource):
            all_, must = self._shuffled(free | chosen), self._shuffled(chosen)
            preferred = await self._plugins[resource].prefer(all_, must, size)
            if self._take(resource, chosen, free.intersection(preferred), size):
                return chosen
        self._take(resource, chosen, free, size)
        return chosen

    def _take(self, resource: str, chosen: set[str], devices: set[str], size: int) -> bool:
        """Takes and marks as many as are missing, in random order."""
        marked = self._marked.setdefault(resource, set())
        for name in self._shuffled(devices - chosen)[: size - len(chosen)]:
            marked.add(name)
            chosen.add(name)
        return len(chosen) == size

    def _collect_garbage(self) -> None:
        """Frees the devices of ended pods. Then all marks are made anew from what was given, as in kubelet. The marks
        of an Allocate in progress are lost, and its devices may be given out again."""
        active = set(self._active())
        gone = [key for key in self.given if key.uid not in active]
        for key in gone:
            del self.given[key]
        if gone:
            self._marked = self._in_use()

    def _in_use(self) -> dict[str, set[str]]:
        used: dict[str, set[str]] = {}
        for key, devices in self.given.items():
            used.setdefault(key.resource, set()).update(devices.ids)
        return used

    def _shuffled(self, names: Iterable[str]) -> list[str]:
        ordered = sorted(names)
        self._dice.shuffle(ordered)
        return ordered


def _lasting(spec: dict[str, Any]) -> list[str]:
    """The containers that stay: sidecars and app containers."""
    sidecars = [c["name"] for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"]
    return sidecars + [container["name"] for container in spec.get("containers") or ()]
