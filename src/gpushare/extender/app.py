"""`gpushare extender`: its parts, what runs, and how it ends. Read top to bottom.

Everything in memory is rebuilt from the API server at start. Schedulers are answered once that is done, which is when
`/readyz` says ok.
"""

import asyncio
import contextlib
import functools
import gc
import secrets
import signal
import ssl
import time
from typing import Any, NamedTuple

from gpushare.core.facts import names, objects
from gpushare.core.facts.model import Unit
from gpushare.core.facts.policies import POLICIES
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.scheduling.life import Life
from gpushare.core.scheduling.reach import Reach
from gpushare.extender import server, watches
from gpushare.extender.background.cluster_figures import ClusterFigures
from gpushare.extender.binder import Binder
from gpushare.extender.events import Announcer
from gpushare.extender.housekeeping import Housekeeping
from gpushare.extender.metrics import Metrics
from gpushare.extender.policy.part import PolicyPart
from gpushare.extender.serving.demand import Demand
from gpushare.extender.verbs import Verbs
from gpushare.extender.vitals import GpuNode, Vitals
from gpushare.kube import client, failures, resources
from gpushare.kube.auth.login import Access
from gpushare.kube.events import Recorder
from gpushare.kube.reflector import Reflector
from gpushare.kube.scraping.server import Listening, Server
from gpushare.obs import log, metrics
from gpushare.obs.beside import beside
from gpushare.obs.signals import ending

NAME = "gpushare-schd-extender"  # its Service and its Deployment
STALE_SECONDS = 10.0  # a view of the cluster that is older decides nothing
START_SECONDS = 30.0  # for the first lists, if a person's help may be needed
STOP_SECONDS = 3.5  # for bindings that are being written
EVENTS_SECONDS = 1.0  # after that, for events that are not sent yet
KEPT = 16  # connections for bindings and events; a busy API server takes long for each
NEW_OBJECTS = 10_000  # between two collections; each pod leaves some hundred, hardly one of them in a cycle
LOOK_SECONDS = 0.05  # between two looks at whether the cluster is read
NOT_SYNCED = "gpushare has not read the cluster yet: {what}"
BEING_BOUND = "it is being bound to {node} right now"
STALE = "gpushare has not heard from the API server for {seconds:.0f} s"

logger = log.get(__name__)


class Config(NamedTuple):
    host: str
    ports: list[int]
    policy: str
    unit: Unit | None
    tls: ssl.SSLContext | None
    patience: float = 600.0  # seconds; 0: GPUs are never kept for pods that waited long
    metrics: Listening | None = None  # for Prometheus, where it cannot reach the ports for schedulers
    policy_namespace: str = ""  # where the policy ConfigMaps are; empty: none are read


class Extender:
    """All parts, made but not running."""

    def __init__(self, config: Config, api: client.Api) -> None:
        self.api = api
        self.identity = secrets.token_hex(4)
        unit, clock = config.unit, time.monotonic
        self._packs = POLICIES[config.policy].packing is not None
        self.ledger = Ledger()
        self.metrics = Metrics(self.ledger)
        self.demand = Demand(clock)
        self.recorder = Recorder(api, busy=self.demand.is_high)
        self.announcer = Announcer(self.recorder, self.ledger, self.demand.is_high)
        self.nodes = watches.Nodes(self.ledger, self.announcer, unit=unit, clock=clock)
        self.reach = Reach(self.nodes.by_rules.allowed, self.nodes.by_rules.open_to, self.nodes.by_rules.reserved)
        self.life = Life(
            self.ledger, policy=config.policy, patience=config.patience, reach=self.reach,
            node_points=self.nodes.by_rules.points,
        )  # fmt: skip
        self.pods = watches.Pods(
            self.life, self.announcer, self.metrics, unit=unit, identity=self.identity, clock=clock
        )
        self.watches: dict[str, Reflector[Any]] = {
            "nodes": Reflector(api, resources.NODES, objects.Node, self.nodes, key=lambda n: n.metadata.name),
            "configmaps": Reflector(
                api, resources.CONFIG_MAPS, objects.ConfigMap, watches.ConfigMaps(self.nodes),
                namespace=names.UNHEALTHY_NAMESPACE, key=lambda m: m.metadata.name,
            ),
            "pods": Reflector(api, resources.PODS, objects.Pod, self.pods, key=lambda p: p.metadata.uid),
        }  # fmt: skip
        # Not one of the watches that answers depend on: a cluster may have no GPUNodes. Then what GPUs do is unknown.
        self.vitals = Vitals(self.ledger, now=time.time, clock=clock)
        self.vitals_watch: Reflector[Any] = Reflector(
            api, resources.GPU_NODES, GpuNode, self.vitals, key=lambda node: node.metadata.name, optional=True
        )
        self.binder = Binder(
            api, self.life, self.announcer, self.metrics,
            unit=unit, identity=self.identity, connected=self.is_connected,
        )  # fmt: skip
        self.verbs = Verbs(
            self.life, unit=unit, clock=clock, cannot_answer=self.cannot_answer, count_refusal=self.metrics.refused,
            doing=self.vitals.fresh,
        )  # fmt: skip
        self.housekeeping = Housekeeping(
            api, self.life, self.nodes, self.pods, self.announcer, self.metrics, self.vitals
        )
        self.figures = ClusterFigures(self.life)
        self.metrics.look(lambda: self.figures.last)
        self.metrics.watch(
            lambda: [(name, watch.age()) for name, watch in self.watches.items()],
            lambda: (self.recorder.sent, self.recorder.dropped, self.recorder.failed),
        )
        self.policy = None
        if config.policy_namespace:
            self.policy = PolicyPart(
                config.policy_namespace, api, self.life, self.recorder, self.metrics,
                unit=unit, over_users=self.vitals.over_users, not_ready=self.not_ready,
            )  # fmt: skip
        self.scraped = None
        if config.metrics is not None:
            page = functools.partial(metrics.exposition, self.metrics.registry)
            self.scraped = Server(config.metrics, NAME, api, page)

    # What runs

    def start(self) -> list[asyncio.Task[None]]:
        """Everything that runs for ever. The first task that ends has failed."""
        gc.disable()  # until the cluster is read: all that the lists bring stays, so there is nothing to collect
        works = [watch.run() for watch in self.watches.values()]
        works += [self.housekeeping.run(self.not_ready), self.recorder.run(), self._explain_waiting_pods()]
        works += [self.figures.run(self.not_ready), beside(self._watch_vitals), beside(self._learn)]
        if self.policy is not None:
            works += [beside(self.policy.watch.run), beside(self.policy.rescheduler.run)]
        works += [self.scraped.run()] if self.scraped is not None else []
        return [asyncio.create_task(work) for work in works]

    async def _explain_waiting_pods(self) -> None:
        """Events that say why a pod waits. Not before the cluster is read: they speak of all nodes."""
        await self._read_cluster()
        gc.freeze()  # what was read stays: to look through it again and again would stop everything for nothing
        gc.set_threshold(NEW_OBJECTS)
        gc.enable()
        logger.info("synced", nodes=len(self.ledger.nodes()), pods=len(self.ledger.holdings()), extender=self.identity)
        await self.announcer.run(self.reach.allowed)

    async def _learn(self) -> None:
        await self.synced()
        await self.pods.learning.run(self._not_read)

    async def _watch_vitals(self) -> None:
        """Not before the cluster is read, which comes first."""
        await self.synced()
        await self.vitals_watch.run()

    async def _read_cluster(self) -> None:
        """Waits for the first lists. If a person's help is needed to get them, ends with the reason after a while."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_SECONDS):
                await self.synced()
        while missing := [watch for watch in self.watches.values() if not watch.synced]:
            for watch in missing:
                failure = watch.failure
                if failure is not None and failures.needs_help(failure, waits_for_connection=False):
                    raise failures.explain(failure, self.api.access)
            await asyncio.sleep(LOOK_SECONDS)

    async def synced(self) -> None:
        for watch in self.watches.values():
            await watch.wait_synced()

    async def finish(self) -> None:
        """Before the end: bindings that are being written, and then events, also theirs, get some time."""
        await self.binder.finish(STOP_SECONDS)
        await self.recorder.drain(EVENTS_SECONDS)

    # Whether it can answer

    def not_ready(self) -> str:
        """Why nothing can be answered now; empty if it can."""
        why = self._not_read()
        if not why and self._packs and not self.pods.learning.learned:
            return NOT_SYNCED.format(what="which pods come")
        return why

    def _not_read(self) -> str:
        """Why the view of the cluster may be old or incomplete; empty if it is neither."""
        for name, watch in self.watches.items():
            if watch.current:
                continue
            if not watch.synced:
                return NOT_SYNCED.format(what=f"{name}: {watch.failure}" if watch.failure else name)
            cut_off = watch.disconnected_for()
            if cut_off > STALE_SECONDS:
                return STALE.format(seconds=cut_off)
        if self.policy is not None and not self.policy.settled:
            return NOT_SYNCED.format(what="policy ConfigMaps")
        return ""

    def cannot_answer(self, uid: str) -> str:
        """The same for one pod, whose binding may be in progress."""
        target = self.binder.target(uid)
        return BEING_BOUND.format(node=target) if target else self.not_ready()

    def is_connected(self) -> bool:
        """Whether every change in the cluster is seen at this moment."""
        return all(watch.current for watch in self.watches.values())


async def run(config: Config, access: Access) -> signal.Signals:
    """Runs until a signal comes, and returns it."""
    signals = ending()
    async with client.connect(access, kept=KEPT) as api:
        extender = Extender(config, api)
        handlers = server.Handlers(
            extender.verbs, extender.binder, extender.metrics, extender.not_ready, extender.demand
        )
        listening = await server.serve(handlers, config.host, config.ports, config.tls)
        logger.info("listening", host=config.host, ports=config.ports, policy=config.policy, unit=config.unit or "any")
        tasks, stop = extender.start(), asyncio.create_task(signals.get())
        try:
            await asyncio.wait([stop, *tasks], return_when=asyncio.FIRST_COMPLETED)
            logger.info("stopping")
        finally:
            await asyncio.gather(extender.finish(), listening.cleanup())
            for task in (stop, *tasks):
                task.cancel()
            ended = await asyncio.gather(stop, *tasks, return_exceptions=True)
        for end in ended:
            if isinstance(end, Exception):
                raise end
        return stop.result()
