"""`gpushare extender`: wiring, read top to bottom.

Started by the command line. Everything in memory is rebuilt from the API server at start; it answers schedulers only
once that is done, and says so in `/readyz`.
"""

import asyncio
import contextlib
import gc
import secrets
import signal
import ssl
import time
from datetime import UTC, datetime
from typing import Any, NamedTuple

from gpushare.core.facts import names, objects
from gpushare.core.facts.model import PodFacts, Unit
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.placement.cost import CALL_LOOKS, Budget
from gpushare.core.scheduling.life import Life
from gpushare.core.scheduling.pending import Reach
from gpushare.extender import server, watches
from gpushare.extender.binder import Binder
from gpushare.extender.events import Announcer
from gpushare.extender.kept_annotation import GONE, Notes
from gpushare.extender.metrics import Metrics
from gpushare.extender.verbs import Verbs
from gpushare.kube import client, failures, pod_requests, resources
from gpushare.kube.auth.login import Access
from gpushare.kube.errors import ApiError, KubeError
from gpushare.kube.events import Recorder
from gpushare.kube.reflector import Reflector
from gpushare.obs import log
from gpushare.obs.signals import ending

TICK = 0.05  # seconds; how late something that came free may be noticed
UNITS_TICK = 30.0
PATIENCE_TICK = 1.0
STALE_SECONDS = 10.0  # a view of the cluster that has been cut off for longer is not acted on
START_SECONDS = 30.0  # a cluster that cannot be asked for so long will not be without somebody's help
STOP_SECONDS = 3.5  # for bindings that are being written
EVENTS_SECONDS = 1.0  # after that, for events that are not sent yet
AGAIN_SECONDS = 1.0  # between two tries to touch or read a pod
NOT_SYNCED = "gpushare has not read the cluster yet: {what}"
STALE = "gpushare has not heard from the API server for {seconds:.0f} s"
TOUCHES = 32  # wake-ups sent at the same time
READS = 16  # pods asked for at the same time: bindings need connections, too

logger = log.get(__name__)


class Config(NamedTuple):
    host: str
    ports: list[int]
    policy: str
    unit: Unit | None
    tls: ssl.SSLContext | None
    patience: float = 600.0  # seconds; 0: GPUs are never kept for who has waited long


class Extender:
    """All parts, made but not running."""

    def __init__(self, config: Config, api: client.Api) -> None:
        self.config, self.api = config, api
        self.identity = secrets.token_hex(4)
        clock = time.monotonic
        self.ledger = Ledger()
        self.metrics = Metrics(self.ledger)
        self.recorder = Recorder(api)
        self.announcer = Announcer(self.recorder, self.ledger)
        self.nodes = watches.Nodes(self.ledger, self.announcer, unit=config.unit, clock=clock)
        reach = Reach(self.nodes.allowed, self.nodes.open_to)
        self.life = Life(self.ledger, policy=config.policy, patience=config.patience, reach=reach)
        self.notes = Notes(api, self.life.patience.turns)
        self.pods = watches.Pods(
            self.life, self.announcer, self.metrics, unit=config.unit, identity=self.identity, clock=clock
        )
        maps = watches.ConfigMaps(self.nodes)
        self.watches: dict[str, Reflector[Any]] = {
            "nodes": Reflector(api, resources.NODES, objects.Node, self.nodes, key=lambda n: n.metadata.name),
            "configmaps": Reflector(
                api, resources.CONFIG_MAPS, objects.ConfigMap, maps, namespace=names.UNHEALTHY_NAMESPACE,
                key=lambda m: m.metadata.name,
            ),
            "pods": Reflector(api, resources.PODS, objects.Pod, self.pods, key=lambda p: p.metadata.uid),
        }  # fmt: skip
        self.binder = Binder(
            api, self.life, self.announcer, self.metrics,
            unit=config.unit, identity=self.identity, connected=self.is_connected,
        )  # fmt: skip
        self.verbs = Verbs(self.life, self.metrics, unit=config.unit, clock=clock, cannot_answer=self.cannot_answer)
        self.metrics.watch(
            lambda: [(name, watch.age()) for name, watch in self.watches.items()],
            lambda: (self.recorder.sent, self.recorder.dropped, self.recorder.failed),
        )

    def not_ready(self) -> str:
        """Why nothing can be answered now; empty if all is well."""
        for name, watch in self.watches.items():
            if not watch.synced:
                return NOT_SYNCED.format(what=f"{name}: {watch.failure}" if watch.failure else name)
            cut_off = watch.disconnected_for()
            if cut_off > STALE_SECONDS:
                return STALE.format(seconds=cut_off)
        return ""

    def is_connected(self) -> bool:
        """Whether all that happens in the cluster is heard at this moment."""
        return all(watch.synced and not watch.disconnected_for() for watch in self.watches.values())

    def cannot_answer(self, uid: str) -> str:
        """The same for one pod, whose binding may be under way."""
        target = self.binder.target(uid)
        return f"it is being bound to {target} right now" if target else self.not_ready()

    async def keep_time(self) -> None:
        """What ends by time, and whom that wakes."""
        units_due = patience_due = 0.0
        slots, reads = asyncio.Semaphore(TOUCHES), asyncio.Semaphore(READS)
        async with asyncio.TaskGroup() as touches:
            while True:
                await asyncio.sleep(TICK)
                now = time.monotonic()
                self.ledger.expire(now)
                self.nodes.tick()
                if self.not_ready():
                    continue
                self.ledger.study(Budget(CALL_LOOKS))
                if now >= patience_due:  # before others are woken for what is kept from now on
                    for pod in self.take_turns(time.time()):
                        touches.create_task(self.notes.write(pod))
                    patience_due = now + PATIENCE_TICK
                for pod in self.life.due(now):
                    touches.create_task(self._touch(pod, slots))
                while self.pods.unsure:
                    touches.create_task(self._make_sure(self.pods.unsure.pop(), reads))
                if now >= units_due:
                    self.nodes.check_units()
                    units_due = now + UNITS_TICK

    def take_turns(self, now: float) -> list[PodFacts]:
        """Whose turn it is to have GPUs kept, and whose no longer. Returns the pods that this is to be written on."""
        changes = self.life.take_turns(now)
        for kept in changes.given:
            self.announcer.kept(kept, now - kept.since)
        return [*changes.ended, *[kept.pod for kept in changes.given]]

    def start(self) -> list[asyncio.Task[None]]:
        """Everything that runs for ever. The first that ends has failed."""
        gc.disable()  # until synced: what the lists bring stays, and looking through it again and again frees nothing
        works = [watch.run() for watch in self.watches.values()]
        works += [self.keep_time(), self.recorder.run(), self._settle()]
        return [asyncio.create_task(work) for work in works]

    async def synced(self) -> None:
        for watch in self.watches.values():
            await watch.wait_synced()

    async def _settle(self) -> None:
        """After the first list a full collection over all that stays would stop everything for nothing: freeze it."""
        await self._first_lists()
        gc.freeze()
        gc.enable()
        logger.info("synced", nodes=len(self.ledger.nodes()), pods=len(self.ledger.holdings()), extender=self.identity)
        await self.announcer.run(self.nodes.allowed)  # not before: what it says is said of all nodes

    async def _first_lists(self) -> None:
        """Waits for them, but not for ever for a cluster that cannot be asked."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_SECONDS):
                await self.synced()
        while missing := [watch for watch in self.watches.values() if not watch.synced]:
            for watch in missing:
                failure = watch.failure
                if failure is not None and failures.needs_help(failure, waits_for_connection=False):
                    raise failures.explain(failure, self.api.access)
            await asyncio.sleep(TICK)

    async def _touch(self, pod: PodFacts, slots: asyncio.Semaphore) -> None:
        """Writes an annotation on a waiting pod. kube-scheduler sees the change and asks about the pod again."""
        stamp = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        async with slots:
            try:
                await pod_requests.annotate(self.api, pod.namespace, pod.name, pod.uid, {names.WOKEN: stamp})
                self.life.wakeups.touched(pod.uid, time.monotonic())
                self.metrics.wake_ups.inc()
                return
            except KubeError as error:
                failure = error
        if isinstance(failure, ApiError) and failure.status in GONE:
            self.life.wakeups.gone(pod.uid)  # nobody to wake: the next one may come
            return
        logger.warn("wake-up failed, trying again", pod=f"{pod.namespace}/{pod.name}", why=str(failure))
        await asyncio.sleep(AGAIN_SECONDS)
        self.life.wakeups.failed_to_wake(pod.uid)

    async def _make_sure(self, pod: PodFacts, slots: asyncio.Semaphore) -> None:
        """Known to us, but no list shows it as we know it: is it there, and bound?"""
        async with slots:
            held = self.ledger.holding(pod.uid)
            try:
                found = await pod_requests.read(self.api, pod.namespace, pod.name)
            except KubeError:
                pass
            else:
                self.pods.made_sure(pod, held, found)
                return
        await asyncio.sleep(AGAIN_SECONDS)
        self.pods.unsure.append(pod)


async def run(config: Config, access: Access) -> signal.Signals:
    """Until a signal comes, which is returned."""
    signals = ending()
    async with client.connect(access) as api:
        extender = Extender(config, api)
        handlers = server.Handlers(extender.verbs, extender.binder, extender.metrics, extender.not_ready)
        listening = await server.serve(handlers.application(), config.host, config.ports, config.tls)
        logger.info("listening", host=config.host, ports=config.ports, policy=config.policy, unit=config.unit or "any")
        tasks, stop = extender.start(), asyncio.create_task(signals.get())
        try:
            await asyncio.wait([stop, *tasks], return_when=asyncio.FIRST_COMPLETED)
            logger.info("stopping")
        finally:
            await asyncio.gather(extender.binder.finish(STOP_SECONDS), listening.cleanup())
            await extender.recorder.drain(EVENTS_SECONDS)
            for task in (stop, *tasks):
                task.cancel()
            ended = await asyncio.gather(stop, *tasks, return_exceptions=True)
        for end in ended:
            if isinstance(end, Exception):
                raise end
        return stop.result()
