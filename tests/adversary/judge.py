"""Who could run now, and who was told nothing: the second half of the accountant's work.

For a pod that waits it finds out by trying every way whether it surely fits somewhere it may go, or surely nowhere.
Whoever fits must be woken soon, and placed in the end; whoever fits nowhere must have a Warning event that says so.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

from gpushare.core.facts import names
from gpushare.core.facts.policies import POLICIES
from tests.adversary import intree
from tests.adversary.accountant import MIB_IN, Accountant, Published, Wrong, gpu_containers, is_ours, visible_key
from tests.adversary.scheduler import Scheduler, is_waiting
from tests.adversary.server import Object

WAKE_SECONDS = 3.0  # promised is about one; half of that passes between two looks of a life
EVENT_SECONDS = 10.0
PLAIN = {name for name, policy in POLICIES.items() if policy.score is None and not policy.by_chance}
MOST_SHARES = 3  # of more containers no promise is made: a search may be given up


class Ask(NamedTuple):
    """What one container asks of each of its GPUs. `role`: app, sidecar or init, in the order they start."""

    role: str
    units: int
    gpus: int
    whole: bool
    slots: int = 0  # MPS
    size: int = 0  # bytes that come with a slot; 0: its part of the GPU
    nvidia: bool = False


class Spot(NamedTuple):
    """One GPU: what it has and what is free of it. `part`: of an MPS share that names no memory. `unit`: bytes."""

    total: int
    left: int
    slots: int
    part: int
    unit: int

    def need(self, ask: Ask) -> int:
        if ask.whole:
            return self.total
        return -(-ask.size // self.unit) or self.part if ask.slots else ask.units


class Request(NamedTuple):
    asks: tuple[Ask, ...]
    pin: str
    unit: str | None


def request_of(pod: Object, default_unit: str | None) -> Request | None:
    """What a pod asks, or None if anything about it is odd: then nothing is promised."""
    notes, labels = pod["metadata"].get("annotations", {}), pod["metadata"].get("labels", {})
    split, unit = notes.get(names.GPU_COUNT, labels.get(names.GPU_COUNT, "1")), notes.get(names.MEMORY_UNIT)
    odd = notes.get(names.POLICY, "spread") not in PLAIN or unit not in (None, "MiB", "GiB")
    if odd or not split.isdigit() or not 1 <= int(split) <= 8:
        return None
    if any(not is_ours(c) for c in (*pod["spec"]["containers"], *pod["spec"].get("initContainers", []))):
        return None
    asks = []
    for container in gpu_containers(pod):
        ask = _ask(pod, container, int(split))
        if ask is None:
            return None
        asks.append(ask)
    keys = [visible_key(container) for container in gpu_containers(pod)]
    if any(keys) and not (all(keys) and len(set(keys)) == len(keys)):
        return None
    return Request(tuple(asks), "direct" if any(keys) else "plugin", unit or default_unit)


def _ask(pod: Object, container: Object, split: int) -> Ask | None:
    resources = (names.GPU_MEM, names.GPU_COUNT, names.NVIDIA_GPU, names.MPS_GPU)
    memory, count, nvidia, mps = amounts = [intree.asks(container, resource) for resource in resources]
    if sum(amount > 0 for amount in amounts) > 1 or memory % split or memory > 1 << 20 or max(amounts[1:]) > 8:
        return None
    role = "app"
    if container in pod["spec"].get("initContainers", []):
        role = "sidecar" if container.get("restartPolicy") == "Always" else "init"
    if mps:
        written = pod["metadata"].get("annotations", {}).get(names.SLOT_MEMORY[0], "0")
        return Ask(role, 0, mps, False, 1, intree.number(written)) if written != "odd" else None
    if count or nvidia:
        return Ask(role, 0, count or nvidia, True, nvidia=bool(nvidia))
    return Ask(role, memory // split, split, False)


def suits(request: Request, there: Published) -> bool:
    """Whether such a node may serve such a request, however much is free."""
    if not there.ready or not there.plain or request.unit not in (None, there.unit):
        return False
    if any((ask.slots and not there.slots) or (ask.nvidia and not there.whole) for ask in request.asks):
        return False
    if there.pin == "aliyun":
        plain = len(request.asks) == 1 and request.asks[0] == request.asks[0]._replace(role="app", gpus=1, whole=False)
        return plain and request.pin == "plugin"
    return there.pin == request.pin


class Judge:
    def __init__(self, accountant: Accountant, scheduler: Scheduler, unit: str | None) -> None:
        self.accountant, self.scheduler, self.unit = accountant, scheduler, unit
        self.server = accountant.server
        self._fits_since: dict[str, float] = {}
        # By pod: what the scheduler last said of it, since when, and whether it was stuck then and ever since.
        self._stuck: dict[str, tuple[str, float, bool]] = {}
        self._seen = ((0, 0), 0)
        self._last: dict[str, tuple[set[str], bool]] = {}

    def waiting(self) -> list[tuple[str, Object]]:
        return [(key, pod) for key, pod in self.server.pods.items() if is_waiting(pod)]

    def look(self, *, calm: bool) -> None:
        """Once in a while. `calm`: the extender knows all there is to know, and is not kept from anything."""
        now = self.server.clock()
        if not calm:
            self._fits_since.clear()
            self._stuck = {key: (_said(pod), now, False) for key, pod in self.waiting()}
            return
        found = self._found()
        self._check_woken(found, now)
        self._check_told(found, now)

    def _found(self) -> dict[str, tuple[set[str], bool]]:
        """Of each waiting pod, the nodes where it surely fits, and whether it surely fits nowhere it may go."""
        state = (self.server.moment, len(self.scheduler.assumed))
        if state != self._seen:
            self._seen = state
            self._last = {key: (self.places(pod), self.is_stuck(pod)) for key, pod in self.waiting()}
        return self._last

    def _check_woken(self, found: dict[str, tuple[set[str], bool]], now: float) -> None:
        active = [key for key, place in self.scheduler.queue.items() if not place.waits]
        for key, (places, _) in found.items():
            queued = self.scheduler.queue.get(key)
            free = places - {node for node, _, _ in self.scheduler.assumed.values()}
            fits = queued is not None and queued.waits and free and self._all_started(free)
            if not fits or self._has_rivals(free, active, found):
                self._fits_since.pop(key, None)
            elif now - self._fits_since.setdefault(key, now) > WAKE_SECONDS:
                raise Wrong("not woken", f"{key} fits {sorted(free)} for {WAKE_SECONDS:g} s, and nobody says so")

    def _has_rivals(self, free: set[str], active: list[str], found: Collection[str]) -> bool:
        """Whether others may be on their way to these nodes, as far as an extender can know."""
        coming = any(key in found and self._may_go(key, free) for key in active)
        return coming or any(self._nobody_knows(key, free) for key in found)

    def _may_go(self, key: str, nodes: set[str]) -> bool:
        """Whether another pod may be on its way to one of these nodes."""
        pod = self.server.pods[key]
        return any(not intree.kept_off(pod, self.server.nodes[node]) for node in nodes)

    def _nobody_knows(self, key: str, nodes: set[str]) -> bool:
        """Whether a rule of the scheduler's own keeps a pod off, of which no call has told the extender yet."""
        pod, place = self.server.pods[key], self.scheduler.queue.get(key)
        if place is None or place.offered or intree.HIDDEN not in pod["metadata"].get("labels", {}):
            return False
        return any(not intree.kept_off(pod, self.server.nodes[node], hidden=False) for node in nodes)

    def _all_started(self, nodes: set[str]) -> bool:
        """While containers wait for kubelet, likes of them may have to wait as well."""
        return all(p["status"].get("phase") == "Running" for n in nodes for _, p, _ in self.accountant.living(n))

    def _check_told(self, found: dict[str, tuple[set[str], bool]], now: float) -> None:
        for key, (_, stuck) in found.items():
            pod = self.server.pods[key]
            said, since, always = self._stuck.get(key, ("", now, False))
            if said != _said(pod):
                said, since, always = _said(pod), now, True
            self._stuck[key] = (said, since, always and stuck)
            if said and always and stuck and now - since > EVENT_SECONDS and not self._has_warning(pod):
                raise Wrong("no event", f"{key} fits no node it may use, and no event says why")

    def _has_warning(self, pod: Object) -> bool:
        uid = pod["metadata"]["uid"]
        if uid in self.server.unheard:  # events are a courtesy: one that cannot be sent is forgotten
            return True
        return any(
            event["involvedObject"].get("uid") == uid and event["type"] == "Warning" for event in self.server.events
        )

    def check_placed(self) -> None:
        """In the end nobody waits who fits."""
        for key, pod in self.waiting():
            places = self.places(pod)
            if places:
                said = pod["status"].get("conditions")
                raise Wrong("waits", f"{key} fits {sorted(places)} and is not placed: {said}")

    # Where it fits

    def places(self, pod: Object) -> set[str]:
        """The nodes where it surely fits."""
        request = request_of(pod, self.unit)
        if request is None or not 0 < len(request.asks) <= MOST_SHARES:
            return set()
        nodes, _ = self.scheduler.feasible(pod)
        return {node for node in nodes if self._fits(request, node, surely=True)}

    def is_stuck(self, pod: Object) -> bool:
        """Whether there are GPUs it may use, and it surely fits none of those nodes."""
        request = request_of(pod, self.unit)
        if request is None or not 0 < len(request.asks) <= MOST_SHARES:
            return False
        usable = [name for name, node in self.server.nodes.items() if not intree.kept_off(pod, node, hidden=False)]
        sharing = [name for name in usable if self.accountant.node(name) is not None]
        return bool(sharing) and not any(self._fits(request, name, surely=False) for name in sharing)

    def _fits(self, request: Request, name: str, *, surely: bool) -> bool:
        there = self.accountant.node(name)
        if there is None or not suits(request, there):
            return False
        inits = any(ask.role == "init" for ask in request.asks)
        if surely and inits and there.pin != "direct":
            return False  # kubelet's pool of init units has rules of its own
        free = {}
        for gpu, card in there.cards.items():
            least, most = self.accountant.used(name, there, gpu)
            used_slots = self.accountant.used_slots(name, there, gpu)[surely]
            if card.healthy and card.total:
                left, slots = max(0, card.total - (most if surely else least)), max(0, there.slots - used_slots)
                part, unit = max(card.total // max(there.slots, 1), 1), MIB_IN[there.unit] << 20
                free[gpu] = Spot(card.total, left, slots, part, unit)
        return _can_place(request.asks, free)


def _said(pod: Object) -> str:
    """What the scheduler says of a pod that it cannot place."""
    return str(pod["status"]["conditions"][0]["message"]) if pod["status"].get("conditions") else ""


def _can_place(asks: Sequence[Ask], free: dict[int, Spot]) -> bool:
    """Tries every way; what init containers need is looked at once the others have their GPUs."""
    stays = [ask for ask in asks if ask.role != "init"]
    return any(_inits_fit(asks, places, free) for places in _ways(stays, free, {}))


Taken = dict[int, tuple[int, int]]  # units and slots


def _ways(stays: Sequence[Ask], free: dict[int, Spot], taken: Taken) -> Iterator[list[tuple[int, ...]]]:
    if not stays:
        yield []
        return
    ask = stays[0]
    able = [gpu for gpu in free if _room(ask, free[gpu], taken.get(gpu, (0, 0)))]
    for gpus in combinations(able, ask.gpus):
        more = dict(taken)
        for gpu in gpus:
            more[gpu] = _with(ask, free[gpu], more.get(gpu, (0, 0)))
        for rest in _ways(stays[1:], free, more):
            yield [gpus, *rest]


def _room(ask: Ask, spot: Spot, taken: tuple[int, int]) -> bool:
    units, slots = _with(ask, spot, taken)
    if ask.whole:
        return spot.left == spot.total and taken == (0, 0)
    return units <= spot.left and (not ask.slots or slots <= spot.slots)


def _with(ask: Ask, spot: Spot, taken: tuple[int, int]) -> tuple[int, int]:
    return taken[0] + spot.need(ask), taken[1] + ask.slots


def _inits_fit(asks: Sequence[Ask], places: list[tuple[int, ...]], free: dict[int, Spot]) -> bool:
    """Init containers run one at a time beside the sidecars that started before them."""
    beside: Taken = {}
    at = iter(places)
    for ask in asks:
        if ask.role == "init":
            if sum(_room(ask, free[gpu], beside.get(gpu, (0, 0))) for gpu in free) < ask.gpus:
                return False
        else:
            for gpu in next(at):
                beside[gpu] = _with(ask, free[gpu], beside.get(gpu, (0, 0)))
    return True
