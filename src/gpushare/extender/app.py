"""`gpushare extender`: wiring, read top to bottom.

Started by the command line. Everything in memory is rebuilt from the API server at start; it answers schedulers only
once that is done, and says so in `/readyz`.
"""

import asyncio
import gc
import secrets
import signal
import socket
import ssl
import time
from datetime import UTC, datetime
from typing import Any, NamedTuple

from aiohttp import web

from gpushare.core import api as objects
from gpushare.core import names
from gpushare.core.ledger import Ledger
from gpushare.core.model import PodFacts, Unit
from gpushare.extender import server, sync
from gpushare.extender.announce import Announcer
from gpushare.extender.binder import Binder
from gpushare.extender.known import KnownPods
from gpushare.extender.metrics import Metrics
from gpushare.extender.verbs import Verbs
from gpushare.extender.waiting import Waiting
from gpushare.kube import client
from gpushare.kube.auth import Access
from gpushare.kube.errors import ApiError, KubeError, Malformed, Unreachable
from gpushare.kube.events import Recorder
from gpushare.kube.reflector import Reflector
from gpushare.obs import errors, log

TICK = 0.05  # seconds; how late something that came free may be noticed
UNITS_TICK = 30.0
STALE_SECONDS = 10.0  # a view of the cluster that has been cut off for longer is not acted on
STOP_SECONDS = 4.0
NOT_SYNCED = "gpushare has not read the cluster yet: {what}"
STALE = "gpushare has not heard from the API server for {seconds:.0f} s"
TOUCHES = 32  # wake-ups sent at the same time

logger = log.get(__name__)


class Config(NamedTuple):
    host: str
    ports: list[int]
    policy: str
    unit: Unit | None
    tls: ssl.SSLContext | None


class Extender:
    """All parts, made but not running."""

    def __init__(self, config: Config, api: client.Api) -> None:
        self.config, self.api = config, api
        self.identity = secrets.token_hex(4)
        clock = time.monotonic
        self.ledger, self.known, self.waiting = Ledger(), KnownPods(), Waiting()
        self.metrics = Metrics(self.ledger)
        self.recorder = Recorder(api)
        self.announcer = Announcer(self.recorder, self.ledger)
        self.pods = sync.Pods(
            self.ledger, self.known, self.waiting, self.announcer, self.metrics,
            unit=config.unit, identity=self.identity, clock=clock,
        )  # fmt: skip
        self.nodes = sync.Nodes(self.ledger, self.announcer, unit=config.unit, clock=clock)
        maps = sync.ConfigMaps(self.nodes)
        self.watches: dict[str, Reflector[Any]] = {
            "nodes": Reflector(api, "/api/v1/nodes", objects.Node, self.nodes, key=lambda n: n.metadata.name),
            "configmaps": Reflector(
                api, f"/api/v1/namespaces/{names.UNHEALTHY_NAMESPACE}/configmaps", objects.ConfigMap, maps,
                key=lambda m: m.metadata.name,
            ),
            "pods": Reflector(api, "/api/v1/pods", objects.Pod, self.pods, key=lambda p: p.metadata.uid),
        }  # fmt: skip
        self.binder = Binder(
            api, self.ledger, self.known, self.announcer, self.metrics,
            policy=config.policy, unit=config.unit, identity=self.identity,
        )  # fmt: skip
        self.verbs = Verbs(
            self.ledger, self.known, self.waiting, self.metrics,
            policy=config.policy, unit=config.unit, clock=clock, cannot_answer=self.cannot_answer,
        )  # fmt: skip
        self.metrics.watch(
            lambda: [(name, watch.age()) for name, watch in self.watches.items()],
            lambda: (self.recorder.sent, self.recorder.dropped, self.recorder.failed),
        )

    def not_ready(self) -> str:
        """Why nothing can be answered now; empty if all is well."""
        for name, watch in self.watches.items():
            if not watch.synced:
                return NOT_SYNCED.format(what=f"{name}: {watch.last_error}" if watch.last_error else name)
            cut_off = watch.disconnected_for()
            if cut_off > STALE_SECONDS:
                return STALE.format(seconds=cut_off)
        return ""

    def cannot_answer(self, uid: str) -> str:
        """The same for one pod, whose binding may be under way."""
        target = self.binder.target(uid)
        return f"it is being bound to {target} right now" if target else self.not_ready()

    async def keep_time(self) -> None:
        """What ends by time, and whom that wakes."""
        units_due = 0.0
        slots = asyncio.Semaphore(TOUCHES)
        async with asyncio.TaskGroup() as touches:
            while True:
                await asyncio.sleep(TICK)
                now = time.monotonic()
                self.ledger.expire(now)
                self.nodes.tick()
                if self.not_ready():
                    continue
                for pod in self.waiting.due(self.ledger, now):
                    touches.create_task(self._touch(pod, slots))
                while self.pods.unsure:
                    touches.create_task(self._make_sure(self.pods.unsure.pop()))
                if now >= units_due:
                    self.nodes.check_units()
                    units_due = now + UNITS_TICK

    async def freeze_when_synced(self) -> None:
        """After the first list nearly everything stays: a full collection over it would stop the world for nothing."""
        for watch in self.watches.values():
            await watch.wait_synced()
        gc.collect()
        gc.freeze()
        logger.info("synced", nodes=len(self.ledger.nodes), pods=len(self.ledger.holdings), extender=self.identity)

    async def _touch(self, pod: PodFacts, slots: asyncio.Semaphore) -> None:
        stamp = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        async with slots:
            try:
                await self.api.patch_pod_annotations(pod.namespace, pod.name, pod.uid, {names.WOKEN: stamp})
                self.metrics.wake_ups.inc()
            except ApiError as error:
                if error.status not in (404, 409):  # gone, or another pod by now: nobody to wake
                    self._try_again(pod, error)
            except (Unreachable, Malformed, KubeError) as error:
                self._try_again(pod, error)

    def _try_again(self, pod: PodFacts, error: Exception) -> None:
        logger.warn("wake-up failed, trying again", pod=f"{pod.namespace}/{pod.name}", why=str(error))
        self.waiting.failed_to_wake(pod.uid)

    async def _make_sure(self, pod: PodFacts) -> None:
        """Bound by us, but no list shows it: is it there?"""
        try:
            found = await self.api.get_pod(pod.namespace, pod.name)
        except (ApiError, Unreachable, Malformed, KubeError):
            self.pods.unsure.append(pod)
            await asyncio.sleep(1)
            return
        if found is None or found.metadata.uid != pod.uid:
            self.ledger.forget(pod.uid)


async def run(config: Config, access: Access) -> None:
    async with client.connect(access) as api:
        extender = Extender(config, api)
        handlers = server.Handlers(extender.verbs, extender.binder, extender.metrics, extender.not_ready)
        listening = await _listen(handlers, config)
        logger.info("listening", host=config.host, ports=config.ports, policy=config.policy, unit=config.unit or "any")
        tasks = [asyncio.create_task(watch.run()) for watch in extender.watches.values()]
        tasks += [
            asyncio.create_task(work)
            for work in (
                extender.keep_time(), extender.recorder.run(), extender.announcer.run(), extender.freeze_when_synced()
            )
        ]  # fmt: skip
        stop = asyncio.create_task(_stop_signal())
        await asyncio.wait([stop, *tasks[:-1]], return_when=asyncio.FIRST_COMPLETED)
        logger.info("stopping")
        await asyncio.gather(extender.binder.finish(STOP_SECONDS), listening.cleanup())
        failed = [task.exception() for task in tasks if task.done() and not task.cancelled() and task.exception()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if failed and failed[0] is not None:
            raise failed[0]


async def _stop_signal() -> None:
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    await stopped.wait()


async def _listen(handlers: server.Handlers, config: Config) -> web.AppRunner:
    try:
        return await server.serve(handlers.application(), config.host, config.ports, config.tls)
    except OSError as error:
        taken = next((port for port in config.ports if _in_use(config.host, port)), None)
        what = f"cannot listen on {config.host}" if taken is None else f"port {taken} on {config.host} is in use"
        way = "stop the other process, or --port N (and change urlPrefix in the scheduler's configuration)"
        raise errors.UserError(what, error.strerror or str(error), way) from error


def _in_use(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        return probe.connect_ex((host, port)) == 0
