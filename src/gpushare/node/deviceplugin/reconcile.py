"""What kubelet really gave becomes what the table and the pods' annotations say.

A second after the last call of kubelet it is asked who has what; `correct` puts the table right, and pods whose
annotations say otherwise are patched, with the uid, so that a pod of the same name is never meant. Nothing waits for
this: until then the plan counts, and the sums are the same. Run by `plugin`.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple

from gpushare.core.annotations import pod_gpus
from gpushare.core.facts import names, units
from gpushare.core.facts.model import PodFacts, Request, Role, Share
from gpushare.kube.client import Api
from gpushare.kube.errors import ApiError, KubeError
from gpushare.kube.reflector import Backoff
from gpushare.kubelet.podresources import Listed, NoAnswer
from gpushare.kubelet.unit_ids import Catalog, Ids, Reader
from gpushare.node.deviceplugin.allocation import correct
from gpushare.node.deviceplugin.allocation.correct import Held
from gpushare.node.deviceplugin.allocation.state import State
from gpushare.node.deviceplugin.allocation.table import Owner
from gpushare.node.pods import NodePod, NodePods
from gpushare.obs import log

QUIET_SECONDS: Final = 1.0
OVERDUE_SECONDS: Final = 3.0  # without such quiet, kubelet is asked in the middle of its question
CATCH_UP_SECONDS: Final = 1.0  # of it: it waits meanwhile and admits nothing else
PATIENCE: Final = 10  # times in a row that kubelet may leave a question unanswered: about a minute
ORIGINAL: Final = "-_-"  # between uuid and number in the ids of the original's plugin
GONE: Final = (404, 409, 422)

logger = log.get(__name__)


class Patch(NamedTuple):
    pod: PodFacts
    annotations: dict[str, str | None]


def is_admitted(seen: NodePod) -> bool:
    """Whether kubelet has given the pod all it asks: it reports containers only of pods it has taken."""
    facts = seen.facts
    return bool(seen.pod.statuses()) or facts.running or facts.annotation(names.ALIYUN_ASSIGNED) == "true"


def held(
    state: State, keys: Mapping[str, str], listed: list[Listed], uids: Mapping[tuple[str, str], str]
) -> list[Held]:
    """kubelet's list in the words of the table. `uids`: by namespace and name."""
    return [_held(state, keys, entry, uids.get((entry.namespace, entry.pod), "")) for entry in listed]


def _held(state: State, keys: Mapping[str, str], entry: Listed, uid: str) -> Held:
    shares = enumerate(state.plans.shares(uid))
    owner = next((Owner(uid, i) for i, s in shares if s.container == entry.container and s.whole is entry.whole), None)
    if entry.whole:
        return Held(owner, {uuid: 1 for uuid in entry.ids if uuid in state.table.gpus}, True, {})
    totals = {uuid: gpu.total for uuid, gpu in state.table.gpus.items()}
    reader = Reader(Ids.of(entry.ids), keys)
    known = reader.all(totals)
    unknown = len(entry.ids) - sum(bits.bit_count() for bits in known.values())
    return Held(owner, known, False, _strange(state, owner, reader.unknown(totals)) if unknown else {})


def _strange(state: State, owner: Owner | None, unknown: list[str]) -> dict[str, int]:
    """On which GPUs units under foreign ids are: the annotation says it. The original lets kubelet choose any ids and
    gives the container the annotated GPU, so the GPU an id names is only a second best."""
    gpus = state.plans.planned(owner) if owner is not None else None
    if owner is not None and gpus:
        each = -(-len(unknown) // len(gpus))
        given_in = pod_gpus.counted_in(state.plans.pods[owner.uid], state.facts)
        return dict.fromkeys(gpus, units.converted(each, given_in, state.facts.unit))
    named = [id.partition(ORIGINAL)[0] for id in unknown]
    if all(uuid in state.table.gpus for uuid in named):
        return {uuid: named.count(uuid) for uuid in sorted(set(named))}
    return dict.fromkeys(state.table.gpus, len(unknown))


def patches(state: State) -> list[Patch]:
    """What the annotations of pods must say and do not."""
    found = []
    for uid, pod in state.plans.pods.items():
        wanted = _annotations(state, uid, pod)
        missing = {key: value for key, value in wanted.items() if (pod.annotation(key) or None) != value}
        if missing:
            found.append(Patch(pod, missing))
    return found


def _annotations(state: State, uid: str, pod: PodFacts) -> dict[str, str | None]:
    """All of them if the pod is elsewhere than they say; else only that it has got what it asks. None at all if it was
    taken for another and has more GPUs than it asks, or fewer: it then counts on every GPU, which is too much."""
    if not isinstance(pod.request, Request):
        return {}
    shares = pod.request.shares
    if any(_has_other_gpus(state, Owner(uid, i), share) for i, share in enumerate(shares)):
        return dict.fromkeys((names.ALIYUN_IDX, names.ALLOCATION))
    places = [_place(state, Owner(uid, i)) for i in range(len(shares))]
    known = [place for place in places if place is not None]
    if len(known) < len(places):
        return {}
    assigned: dict[str, str | None] = {}
    if all(_is_sure(state, Owner(uid, i)) for i in range(len(shares))):
        assigned[names.ALIYUN_ASSIGNED] = "true"
    said = pod_gpus.planned(pod, state.facts)
    true = pod_gpus.allocation(shares, state.facts, tuple(known))
    if said is not None and pod_gpus.allocation(said[0], state.facts, said[1]) == true:
        return assigned
    written = pod_gpus.write(pod.request, state.facts, tuple(known), extender="", nanoseconds=0)
    ours = (names.ALIYUN_IDX, names.ALIYUN_POD, names.ALIYUN_DEV, names.ALLOCATION)
    return {key: written[key] for key in ours} | assigned


def _has_other_gpus(state: State, owner: Owner, share: Share) -> bool:
    grant = state.table.of(owner)
    has = grant is not None and grant.sure and share.role is not Role.INIT
    return grant is not None and has and len(grant.gpus) != share.gpus


def _is_sure(state: State, owner: Owner) -> bool:
    grant = state.table.of(owner)
    return grant is not None and grant.sure


def _place(state: State, owner: Owner) -> tuple[int, ...] | None:
    """The GPUs of a share, by position: those it has, or else those of its plan."""
    position = {gpu.uuid: at for at, gpu in enumerate(state.facts.gpus)}
    share = state.share(owner)
    grant = state.table.of(owner)
    if grant is None:
        gpus = list(state.plans.planned(owner) or ())
    elif share.role is Role.INIT:
        gpus = _pool(state, owner)[: share.gpus]
    else:
        gpus = sorted(grant.gpus, key=lambda uuid: position.get(uuid, -1))
    if len(gpus) != share.gpus or any(uuid not in position for uuid in gpus):
        return None
    return tuple([position[uuid] for uuid in gpus])


def _pool(state: State, owner: Owner) -> list[str]:
    """The GPUs that a pod's init containers share: first those that later containers drew from them."""
    together = sorted(state.together(owner), key=lambda o: state.share(o).role is Role.INIT)
    grants = [state.table.of(other) for other in together]
    return list(dict.fromkeys(uuid for grant in grants if grant is not None for uuid in sorted(grant.gpus)))


class Calls:
    """Whether kubelet is asking us something, and since when not."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._running = 0
        self._last = clock()

    def __enter__(self) -> None:
        self._running += 1

    def __exit__(self, *_: object) -> None:
        self._running -= 1
        self._last = self.clock()

    def quiet_in(self) -> float:
        """Seconds until kubelet may be asked something; 0 now."""
        return QUIET_SECONDS if self._running else max(QUIET_SECONDS - (self.clock() - self._last), 0.0)


class Reconciler:
    """`ask`: what kubelet says who has what. Listeners are told when the table was put right."""

    def __init__(
        self,
        state: State,
        catalog: Catalog,
        ask: Callable[[], Awaitable[list[Listed]]],
        api: Api,
        pods: NodePods,
        calls: Calls,
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.listeners: list[Callable[[], None]] = []
        self.ask = ask
        self._state, self._catalog, self._api, self._pods = state, catalog, api, pods
        self._calls, self._sleep = calls, sleep
        self._retry = Backoff(random.random)
        self._wake = asyncio.Event()
        self._wake.set()
        self._uncertain = True
        self._asked = calls.clock()  # kubelet, last
        self._one_at_a_time = asyncio.Lock()
        self._begun = False
        self._failures = 0

    def due(self) -> None:
        """Something happened that kubelet knows more about."""
        self._uncertain = True
        self._wake.set()

    async def run(self) -> None:
        """For ever."""
        while True:
            await self._wake.wait()
            while (wait := self._calls.quiet_in()) > 0:
                await self._write()  # who went otherwise than planned: others must not be sent there
                await self._sleep(wait)
            self._wake.clear()
            if await self.once():
                self._retry.reset()
            else:
                await self._sleep(self._retry.delay())
                self._wake.set()

    async def once(self) -> bool:
        """Asks if there is something to learn, and patches. Whether there is nothing left to do."""
        if self._uncertain:
            self._uncertain = False
            self._uncertain |= not await self.correct()
        return await self._write() and not self._uncertain

    async def catch_up(self) -> None:
        """For a kubelet so busy that quiet never comes. Called while it waits for GetPreferredAllocation: then no
        Allocate is under way, it has marked nothing that a list could make it lose, and it does one pod at a time. Not
        in the middle of a pod, which it may not list yet."""
        if self._uncertain and self._calls.clock() - self._asked > OVERDUE_SECONDS:
            await self.make_sure()

    async def make_sure(self) -> None:
        """Before somebody is placed otherwise than planned, or refused: what seems to be held may be free, and kubelet
        can say it. Asked at such a moment, too."""
        if correct.is_uncertain(self._state) and not self._state.under_way():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CATCH_UP_SECONDS):
                    await self.correct()

    async def correct(self) -> bool:
        """Whether kubelet said all there is to know."""
        async with self._one_at_a_time:
            return await self._correct()

    async def _correct(self) -> bool:
        self._asked = self._calls.clock()
        upto, before = self._state.table.last, self._names()
        try:
            listed = await self.ask()
        except NoAnswer as error:
            logger.warn("kubelet does not say who has which GPU", why=str(error))
            self._guess()
        else:
            self._failures = 0
            if not self._begun:
                self._catalog.recall(name for entry in listed if not entry.whole for name in entry.ids)
            after = self._names()
            uids = {name: uid for name, uid in after.items() if before.get(name) == uid}  # not one just made anew
            entries = held(self._state, self._catalog.keys, listed, uids)
            started = {entry.owner.uid for entry in entries if entry.owner is not None}
            correct.correct(self._state, entries, self._admitted() | started, upto)
        self._begun = True
        for listener in self.listeners:
            listener()
        return not self._failures and not correct.is_uncertain(self._state)

    def _guess(self) -> None:
        """What can be said without kubelet."""
        correct.adopt(self._state, self._admitted())
        if not self._begun:
            correct.assume(self._state, self._admitted())
        self._failures += 1
        if self._failures > PATIENCE:
            correct.give_up(self._state)

    def _names(self) -> dict[tuple[str, str], str]:
        return {(pod.namespace, pod.name): uid for uid, pod in self._state.plans.pods.items()}

    def _admitted(self) -> set[str]:
        return {uid for uid, seen in self._pods.pods.items() if uid in self._state.plans.pods and is_admitted(seen)}

    async def _write(self) -> bool:
        """Whether all annotations say what is known."""
        patched = [await self._patch(patch) for patch in patches(self._state)]
        return all(patched)

    async def _patch(self, patch: Patch) -> bool:
        pod = patch.pod
        try:
            await self._api.patch_pod_annotations(pod.namespace, pod.name, pod.uid, patch.annotations)
        except KubeError as error:
            if isinstance(error, ApiError) and error.status in GONE:
                return True
            logger.warn("cannot write which GPU a pod has", pod=f"{pod.namespace}/{pod.name}", why=str(error))
            return False
        logger.info("annotations made true", pod=f"{pod.namespace}/{pod.name}", **patch.annotations)
        return True
