"""Binding: reserve, one write, and finding out whether it was made.

The write sets the node and the annotations together. Whatever goes wrong, the reservation ends only when it is known
whether the write was made. After a lost answer the pod is read; if it is not bound, the same binding is sent again,
which the API server accepts at most once. The scheduler's call does not wait for all that: it is answered in time.

Nothing is written while a watch is cut off: an API server may come back with an older state of the cluster.
"""

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple

from gpushare.core.facts import names, objects, request
from gpushare.core.facts.model import PodFacts, Refusal, Request, Unit
from gpushare.core.ledger.holding import State
from gpushare.core.scheduling.life import Life, Reservation
from gpushare.extender.events import Announcer
from gpushare.extender.metrics import Metrics
from gpushare.extender.wire import BindArgs
from gpushare.kube import pod_requests
from gpushare.kube.client import Api
from gpushare.kube.errors import ApiError, KubeError, Unreachable
from gpushare.kube.kept.limits import Limits
from gpushare.kube.loop import Backoff
from gpushare.obs import log

ANSWER_SECONDS = 4.0  # kube-scheduler gives up after 5
TRIES = 5  # of a write that the API server answers with an error of its own
RETRY_SECONDS = (0.05, 2.0)
LOST_SECONDS = 300.0  # a write that was lost so long ago does not come: the API server ends a request after 60 s
CONNECT_SECONDS = 3.0  # for watches that are cut off, before anything was written
LOOK_SECONDS = 0.02  # between two looks at whether the watches are connected
IN_PROGRESS = "binding {pod} to {node} is still in progress"
ALREADY = "{pod} is already bound to {node}"
GONE = "{pod} of uid {uid} is gone"
DELETED = "{pod} is being deleted"
CUT_OFF = "nothing was written: gpushare has no connection to the API server at the moment"
TAKEN = "{node}: other pods have taken that GPU memory in the meantime"

logger = log.get(__name__)
Tell = Callable[[str | Exception], None]  # what went wrong, in words or as a bug of ours; empty: nothing


class Outcome(NamedTuple):
    """How a binding ended. `error` is empty if the pod is bound as asked; `ours`: by our write."""

    error: str
    ours: bool = False


class _Caller:
    """Somebody who asked for a binding. He is told once: how it ended, or that it is still in progress."""

    __slots__ = ("_in_progress", "_limit", "_tell")

    def __init__(self, tell: Tell, in_progress: str, limits: Limits) -> None:
        self._tell: Tell | None = tell
        self._in_progress = in_progress
        self._limit = limits.begin(self._late)

    def ended(self, outcome: str | Exception | None, limits: Limits) -> None:
        """None: nobody knows, because we are ending."""
        limits.end(self._limit)
        tell, self._tell = self._tell, None
        if tell is not None:
            tell(self._in_progress if outcome is None else outcome)

    def _late(self) -> None:
        tell, self._tell = self._tell, None
        if tell is not None:
            tell(self._in_progress)


class _Running:
    """A binding that is being made."""

    __slots__ = ("callers", "node", "task")

    def __init__(self, node: str) -> None:
        self.node = node
        self.callers: list[_Caller] = []
        self.task: asyncio.Task[None] | None = None


class Binder:
    def __init__(
        self,
        client: Api,
        life: Life,
        announcer: Announcer,
        metrics: Metrics,
        *,
        unit: Unit | None,
        identity: str,
        nanoseconds: Callable[[], int] = time.time_ns,
        clock: Callable[[], float] = time.monotonic,
        connected: Callable[[], bool] = lambda: True,
    ) -> None:
        self._api, self._life, self._ledger = client, life, life.ledger
        self._announcer, self._metrics = announcer, metrics
        self._unit, self.identity = unit, identity
        self._nanoseconds, self._clock, self._connected = nanoseconds, clock, connected
        self._running: dict[str, _Running] = {}  # by uid
        self._limits = Limits(ANSWER_SECONDS)

    def target(self, uid: str) -> str:
        """The node this pod is being bound to right now, or nothing."""
        return self._running[uid].node if uid in self._running else ""

    async def bind(self, args: BindArgs) -> str:
        """Binds, and returns what went wrong; empty if the pod is bound as asked."""
        told: asyncio.Future[str | Exception] = asyncio.get_running_loop().create_future()
        self.begin(args, lambda outcome: None if told.done() else told.set_result(outcome))
        outcome = await told
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def begin(self, args: BindArgs, tell: Tell) -> None:
        """The same without a task of the caller's. `tell` is called once, at once or later, but in time."""
        running = self._running.get(args.pod_uid)
        in_progress = IN_PROGRESS.format(pod=args.pod_name, node=running.node if running is not None else args.node)
        if running is not None and running.node != args.node:
            tell(in_progress)
            return
        if running is None:
            running = self._running[args.pod_uid] = _Running(args.node)
            running.task = asyncio.create_task(self._run(args, running))
        running.callers.append(_Caller(tell, in_progress, self._limits))

    async def _run(self, args: BindArgs, running: _Running) -> None:
        """Binds, and tells all who asked for it. They are not told by callbacks of the task: each would be one more
        turn of the loop."""
        outcome: str | Exception | None = None
        try:
            outcome = await self._bind(args)
        except Exception as error:  # noqa: BLE001 - whatever our bug is, who asked must hear of it
            outcome = error
        finally:
            del self._running[args.pod_uid]
            for caller in running.callers:
                caller.ended(outcome, self._limits)

    async def finish(self, seconds: float) -> None:
        """Waits for running bindings, but not longer than that: the next extender asks the API server about them."""
        tasks = [running.task for running in self._running.values() if running.task is not None]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _bind(self, args: BindArgs) -> str:
        if not self._connected() and not await self._is_connected_soon():
            return CUT_OFF
        pod = self._bound_pod(args.pod_uid) or self._life.pending.get(args.pod_uid)
        if pod is None:
            read = await self._read(args)
            if isinstance(read, str):
                return read
            pod = self._bound_pod(args.pod_uid) or read  # it may have been bound while it was read
        if (pod.namespace, pod.name) != (args.pod_namespace, args.pod_name):
            return GONE.format(pod=args.pod_name, uid=args.pod_uid)
        if pod.node:
            return "" if pod.node == args.node else ALREADY.format(pod=pod.name, node=pod.node)
        if isinstance(pod.request, Refusal):
            return pod.request.message
        if pod.request is None:  # a managed resource of amount 0: the scheduler leaves even that binding to us
            return (await self._write(pod, args.node, {})).error
        return await self._reserve_and_write(pod, pod.request, args.node)

    def _bound_pod(self, uid: str) -> PodFacts | None:
        holding = self._ledger.bound(uid)
        return holding.pod if holding is not None else None

    async def _read(self, args: BindArgs) -> PodFacts | str:
        """A pod that no watch and no filter call has shown us."""
        try:
            current = await pod_requests.read(self._api, args.pod_namespace, args.pod_name)
        except KubeError as error:
            return f"{args.pod_name} cannot be read: {error}"
        if current is None or current.metadata.uid != args.pod_uid:
            return GONE.format(pod=args.pod_name, uid=args.pod_uid)
        return request.facts(current, self._unit)

    async def _reserve_and_write(self, pod: PodFacts, ask: Request, node: str) -> str:
        assumed = self._ledger.holding(pod.uid)
        if assumed is not None:
            (self._metrics.holds_right if assumed.node == node else self._metrics.holds_wrong).inc()
        reservation = self._life.reserve(pod, ask, node, extender=self.identity, nanoseconds=self._nanoseconds())
        if isinstance(reservation, Refusal):
            self._metrics.conflicts.inc()
            return f"{node}: {reservation.message}"
        try:
            outcome = await self._write(pod, node, reservation.annotations)
            if outcome.ours:
                self._bound(reservation)
        finally:
            self._life.undo(pod.uid)  # what is still only reserved was not bound
        if outcome.error:
            logger.warn("not bound", pod=f"{pod.namespace}/{pod.name}", node=node, why=outcome.error)
        return outcome.error

    def _bound(self, reservation: Reservation) -> None:
        pod, ask, node, places, annotations = reservation
        self._life.confirm(reservation)
        self._metrics.bound.inc()
        self._announcer.assigned(pod, ask, node, places)
        logger.info("bound", pod=f"{pod.namespace}/{pod.name}", node=node.name, gpu=annotations[names.ALLOCATION])

    async def _write(self, pod: PodFacts, node: str, annotations: dict[str, str]) -> Outcome:
        """Returns only when it is known whether the write was made.

        After a lost answer that write may still arrive, however often the pod is seen unbound. Then no refusal of a
        later try is an end, only a pod that is bound or gone. Where other pods have got the memory there is no later
        try: the lost write is waited for, but not for ever.
        """
        retry, tries, now = Backoff(RETRY_SECONDS), 0, asyncio.get_running_loop().time
        lost_at: float | None = None  # when the last write was lost that may still come
        if not self._connected():
            return Outcome(CUT_OFF)
        while True:
            failure = await self._try(pod, node, annotations)
            if failure is None:
                return Outcome("", ours=True)
            tries += 1
            lost_at = now() if _may_still_come(failure) else lost_at
            doubt = lost_at is not None
            if not doubt and _surely_not_made(failure):
                return Outcome(_sentence(failure))
            outcome = await self._outcome(pod, node, annotations)
            if outcome is not None:
                return outcome
            conflict = isinstance(failure, ApiError) and failure.status == 409
            if not doubt and (conflict or tries >= TRIES):
                return Outcome(_sentence(failure))
            await asyncio.sleep(retry.delay())
            ended = await self._before_another(pod, node, annotations, lost_at)
            if ended is not None:
                return ended

    async def _before_another(
        self, pod: PodFacts, node: str, annotations: dict[str, str], lost_at: float | None
    ) -> Outcome | None:
        """None: the write may be sent once more. It may not if other pods have got the memory."""
        if lost_at is None and not await self._is_connected_soon():
            return Outcome(CUT_OFF)
        await self._until_connected()
        while self._ledger.is_crowded(pod.uid):
            if lost_at is None:
                return Outcome(TAKEN.format(node=node))
            await asyncio.sleep(RETRY_SECONDS[1])
            over = asyncio.get_running_loop().time() - lost_at > LOST_SECONDS
            outcome = await self._outcome(pod, node, annotations)
            if outcome is not None or over:
                return outcome or Outcome(TAKEN.format(node=node))
            await self._until_connected()
        return None

    async def _is_connected_soon(self) -> bool:
        """Waits for a short time: a scheduler that gets no answer gives the pod's place away."""
        if self._connected():
            return True
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._until_connected()
        except TimeoutError:
            return False
        return True

    async def _until_connected(self) -> None:
        while not self._connected():  # noqa: ASYNC110 - watches have no event for it
            await asyncio.sleep(LOOK_SECONDS)

    async def _try(self, pod: PodFacts, node: str, annotations: dict[str, str]) -> KubeError | None:
        try:
            await pod_requests.bind(self._api, pod.namespace, pod.name, pod.uid, node, annotations)
        except KubeError as error:
            return error
        return None

    async def _outcome(self, pod: PodFacts, node: str, annotations: dict[str, str]) -> Outcome | None:
        """Reads the pod; None if it is not bound at all."""
        current = await self._read_until_answered(pod)
        if current is None or current.metadata.uid != pod.uid:
            return Outcome(GONE.format(pod=pod.name, uid=pod.uid))
        bound_to, stamped = current.spec.node_name, current.metadata.annotations or {}
        if not bound_to:
            return Outcome(DELETED.format(pod=pod.name)) if current.metadata.deletion_timestamp else None
        if bound_to == node and stamped.get(names.ALIYUN_ASSUME_TIME) == annotations.get(names.ALIYUN_ASSUME_TIME):
            return Outcome("", ours=True)
        self._learn(current)
        return Outcome("" if bound_to == node else ALREADY.format(pod=pod.name, node=bound_to))

    def _learn(self, current: objects.Pod) -> None:
        """Somebody else bound it: count it now, not only when the watch shows it."""
        holding = self._ledger.holding(current.metadata.uid)
        if holding is not None and holding.state is State.RESERVED:  # else the watch has shown something newer
            self._ledger.observe(request.facts(current, self._unit), self._clock())
            self._ledger.unconfirm(current.metadata.uid)

    async def _read_until_answered(self, pod: PodFacts) -> objects.Pod | None:
        retry = Backoff(RETRY_SECONDS)
        while True:
            try:
                return await pod_requests.read(self._api, pod.namespace, pod.name)
            except KubeError:
                await asyncio.sleep(retry.delay())


def _may_still_come(failure: KubeError) -> bool:
    """The API server may have taken the write, or take it later."""
    return failure.sent if isinstance(failure, Unreachable) else isinstance(failure, ApiError) and failure.status == 504


def _surely_not_made(failure: KubeError) -> bool:
    """Nothing was sent, or the answer was a plain no. After a conflict or a server error the pod has to be read."""
    return not isinstance(failure, ApiError) or (failure.status < 500 and failure.status != 409)


def _sentence(failure: KubeError) -> str:
    """Never empty: to the scheduler, an empty one means that the pod is bound."""
    if isinstance(failure, ApiError):
        return failure.message or str(failure)
    return f"the API server does not answer: {failure}" if isinstance(failure, Unreachable) else str(failure)
