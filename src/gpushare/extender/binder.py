"""Binding: reserve, one write, and the truth about what came of it.

The write sets the node and the annotations together. Whatever goes wrong, the reservation ends only when it is known
whether the write was made: after a lost answer the pod is read, and if it is not bound the same binding is sent again,
which the API server takes at most once. That goes on beside the scheduler's call, which gets its answer in time.
"""

import asyncio
import time
from collections.abc import Callable

from gpushare.core import api, codec, names, request
from gpushare.core.book import State
from gpushare.core.ledger import Ledger
from gpushare.core.model import NodeFacts, Places, PodFacts, Refusal, Request, Unit
from gpushare.extender.announce import Announcer
from gpushare.extender.known import KnownPods
from gpushare.extender.metrics import Metrics
from gpushare.extender.wire import BindArgs
from gpushare.kube.client import Api
from gpushare.kube.errors import ApiError, KubeError, Malformed, Unreachable
from gpushare.obs import log

ANSWER_SECONDS = 4.0  # kube-scheduler gives up after 5
TRIES = 5  # of a write that the API server answers with an error of its own
RETRY_SECONDS = (0.05, 2.0)
UNDER_WAY = "binding {pod} to {node} is still under way"

logger = log.get(__name__)


class Binder:
    def __init__(
        self,
        client: Api,
        ledger: Ledger,
        known: KnownPods,
        announcer: Announcer,
        metrics: Metrics,
        *,
        policy: str,
        unit: Unit | None,
        identity: str,
        nanoseconds: Callable[[], int] = time.time_ns,
    ) -> None:
        self._api, self._ledger, self._known = client, ledger, known
        self._announcer, self._metrics = announcer, metrics
        self._policy, self._unit, self.identity, self._nanoseconds = policy, unit, identity, nanoseconds
        self._under_way: dict[str, tuple[str, asyncio.Task[str]]] = {}

    def target(self, uid: str) -> str:
        """The node this pod is being bound to right now, or nothing."""
        return self._under_way[uid][0] if uid in self._under_way else ""

    async def bind(self, args: BindArgs) -> str:
        """Binds, and says what went wrong; empty if the pod is bound as asked."""
        running = self._under_way.get(args.pod_uid)
        if running is not None and running[0] != args.node:
            return UNDER_WAY.format(pod=args.pod_name, node=running[0])
        if running is None:
            task = asyncio.create_task(self._bind(args))
            self._under_way[args.pod_uid] = running = (args.node, task)
            task.add_done_callback(lambda _: self._under_way.pop(args.pod_uid))
        try:
            return await asyncio.wait_for(asyncio.shield(running[1]), ANSWER_SECONDS)
        except TimeoutError:
            return UNDER_WAY.format(pod=args.pod_name, node=args.node)

    async def finish(self, seconds: float) -> None:
        """Wait for what is under way, but not longer than that."""
        tasks = [task for _, task in self._under_way.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)

    async def _bind(self, args: BindArgs) -> str:
        holding = self._ledger.holdings.get(args.pod_uid)
        if holding is not None and holding.state is State.BOUND:
            return "" if holding.node == args.node else f"{args.pod_name} is already bound to {holding.node}"
        pod = self._known.get(args.pod_uid) or await self._read(args)
        if isinstance(pod, str):
            return pod
        if pod.node:
            return "" if pod.node == args.node else f"{args.pod_name} is already bound to {pod.node}"
        if isinstance(pod.claim, Refusal):
            return pod.claim.message
        if pod.claim is None:  # a managed resource of amount 0: the scheduler leaves even that binding to us
            return await self._write(pod, args.node, {})
        return await self._reserve_and_write(pod, pod.claim, args.node)

    async def _read(self, args: BindArgs) -> PodFacts | str:
        """A pod that no watch and no filter call has shown us."""
        try:
            found = await self._api.get_pod(args.pod_namespace, args.pod_name)
        except (ApiError, Unreachable, Malformed, KubeError) as error:
            return f"{args.pod_name} cannot be read: {error}"
        if found is None or found.metadata.uid != args.pod_uid:
            return f"{args.pod_name} of uid {args.pod_uid} is gone"
        return request.facts(found, self._unit)

    async def _reserve_and_write(self, pod: PodFacts, claim: Request, node: str) -> str:
        held = self._ledger.holdings.get(pod.uid)
        if held is not None:
            (self._metrics.holds_right if held.node == node else self._metrics.holds_wrong).inc()
        places = self._ledger.reserve(pod, node, claim.policy or self._policy)
        if isinstance(places, Refusal):
            self._metrics.conflicts.inc()
            return f"{node}: {places.message}"
        facts = self._ledger.nodes[node].facts
        assert facts is not None  # a reservation was just made there
        notes = codec.write(claim, facts, places, extender=self.identity, nanoseconds=self._nanoseconds())
        error = await self._write(pod, node, notes)
        if error:
            self._ledger.undo(pod.uid)
            logger.warn("not bound", pod=f"{pod.namespace}/{pod.name}", node=node, why=error)
        else:
            self._bound(pod, claim, facts, places, notes)
        return error

    def _bound(self, pod: PodFacts, claim: Request, facts: NodeFacts, places: Places, notes: dict[str, str]) -> None:
        self._ledger.confirm(request.bound(pod, facts.name, notes))
        self._known.forget(pod.uid)
        self._metrics.bound.inc()
        self._announcer.assigned(pod, claim, facts, places)
        logger.info("bound", pod=f"{pod.namespace}/{pod.name}", node=facts.name, gpu=notes[names.ALLOCATION])

    async def _write(self, pod: PodFacts, node: str, notes: dict[str, str]) -> str:
        """Returns only when it is known what came of it."""
        delay, longest = RETRY_SECONDS
        refusals = 0
        while True:
            final = False
            try:
                await self._api.bind(pod.namespace, pod.name, pod.uid, node, notes)
                return ""
            except Unreachable as error:
                if not error.sent:
                    return f"the API server does not answer: {error}"
                said = str(error)
            except (Malformed, KubeError) as error:
                said = str(error)
            except ApiError as error:
                if error.status < 500 and error.status != 409:
                    return error.message
                refusals += error.status < 504  # 504 says that the write may still come
                final = error.status == 409 or refusals >= TRIES
                said = error.message
            seen = await self._outcome(pod, node, notes)
            if seen is not None:
                return seen
            if final:
                return said
            await asyncio.sleep(delay)
            delay = min(delay * 2, longest)

    async def _outcome(self, pod: PodFacts, node: str, notes: dict[str, str]) -> str | None:
        """What the pod itself says: empty if it is bound as we wrote, None if it is not bound at all."""
        found = await self._read_until_answered(pod)
        if found is None or found.metadata.uid != pod.uid:
            return f"{pod.name} of uid {pod.uid} is gone"
        if found.metadata.deletion_timestamp and not found.spec.node_name:
            return f"{pod.name} is being deleted"
        if not found.spec.node_name:
            return None
        stamped = found.metadata.annotations or {}
        if found.spec.node_name == node and stamped.get(names.ALIYUN_ASSUME_TIME) == notes.get(
            names.ALIYUN_ASSUME_TIME
        ):
            return ""
        return f"{pod.name} is already bound to {found.spec.node_name}"

    async def _read_until_answered(self, pod: PodFacts) -> api.Pod | None:
        delay, longest = RETRY_SECONDS
        while True:
            try:
                return await self._api.get_pod(pod.namespace, pod.name)
            except (ApiError, Unreachable, Malformed, KubeError):
                await asyncio.sleep(delay)
                delay = min(delay * 2, longest)
