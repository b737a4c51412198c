"""Asks the driver what the GPUs do, once an interval, for everybody who wants to know.

A driver that hangs or fails makes figures old, and figures that are too old are left out: then everybody publishes that
they are unknown. What pods were given is published in any case. A bug in here, or in who listens, is logged: it does
not end what the node sells.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Final, Protocol

from gpushare.gpu.device import Backend
from gpushare.gpu.sample import Pass
from gpushare.node.pods import NodePods
from gpushare.node.publishing.desired import Offered
from gpushare.node.usage import attribution
from gpushare.node.usage.model import Owner, Usage
from gpushare.obs import log
from gpushare.obs.errors import UserError

SECONDS: Final = 5.0  # between two passes, if nothing else is said
FRESH_INTERVALS: Final = 2.5  # figures that are older are left out
NO_ANSWER: Final = "the driver has not answered for {seconds:.0f} s"
OUR_FAULT: Final = "a bug in gpushare; its log names it"

logger = log.get(__name__)


class Owners(Protocol):
    @property
    def unknown(self) -> str:
        """Why nobody can say whose a process is; empty: somebody can."""
        ...

    def of(self, pids: Iterable[int], pods: Container[str]) -> Mapping[int, Owner]:
        """Whose these processes are. Those that are of none of these pods, or gone, are left out. `pods`: uids of all
        pods of this node, as kubelet knows them."""
        ...


class Sampler:
    """`usage` is None until this node has published its GPUs. Listeners are called once an interval, whether the driver
    has answered or not. `buses`: the PCI bus ids of GPUs, by uuid."""

    def __init__(
        self,
        node: str,
        backend: Backend,
        offered: Callable[[], Offered | None],
        pods: NodePods,
        owners: Owners,
        *,
        buses: Callable[[], Mapping[str, str]] = dict,
        seconds: float = SECONDS,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.usage: Usage | None = None
        self.seconds = seconds
        self.listeners: list[Callable[[Usage], None]] = []
        self._node, self._backend, self._offered, self._pods, self._owners = node, backend, offered, pods, owners
        self._buses, self._clock, self._now = buses, clock, now
        self._pass: Pass | None = None  # the last one
        self._at = clock()  # when that began, or the start
        self._sampled_at: float | None = None
        self._failure = ""
        self._looked_up: tuple[Pass | None, Mapping[int, Owner] | None] = (
            None,
            None,
        )  # whose the processes of a pass are
        self._given = attribution.Given()

    async def run(self) -> None:
        """For ever."""
        asking: asyncio.Task[None] | None = None
        try:
            while True:
                due = self._clock() + self.seconds
                if asking is None or asking.done():
                    asking = asyncio.create_task(self._ask())
                await asyncio.wait([asking], timeout=self.seconds)
                with _survived():
                    self._publish()
                await asyncio.sleep(max(due - self._clock(), 0.0))
        finally:
            if asking is not None:
                asking.cancel()

    async def _ask(self) -> None:
        # A slow driver tells some figures long before its last one, so all count as of the beginning.
        began, sampled_at = self._clock(), self._now()
        try:
            self._pass = await self._backend.sample()
        except UserError as failure:
            if failure.what != self._failure:
                logger.warn("the use of GPUs cannot be read", what=failure.what, **failure.fields())
            self._failure = failure.what
        except Exception as error:  # noqa: BLE001 - whatever our bug is, what the node sells goes on
            logger.error("the use of GPUs cannot be read", error=repr(error))
            self._failure = OUR_FAULT
        else:
            self._failure, self._at, self._sampled_at = "", began, sampled_at

    def _publish(self) -> None:
        offered, self.usage = self._offered(), None
        if offered is None:
            return
        silent = self._clock() - self._at
        fresh = self._pass if silent <= FRESH_INTERVALS * self.seconds else None
        if fresh is not None and fresh is not self._looked_up[0]:
            self._looked_up = fresh, self._whose(fresh)
        self.usage = Usage(
            self._node,
            attribution.joined(offered, self._pods, fresh, self._looked_up[1], self._buses(), self._given),
            sampled_at=self._sampled_at,
            driver=self._pass.driver if self._pass is not None else "",
            failure="" if fresh else self._failure or NO_ANSWER.format(seconds=silent),
            containers_unknown=self._owners.unknown,
        )
        for listener in self.listeners:
            with _survived():
                listener(self.usage)

    def _whose(self, sampled: Pass) -> Mapping[int, Owner] | None:
        """Asked once for each pass: later a pid may be that of another process."""
        if self._owners.unknown:
            return None
        pids = {process.pid for gpu in sampled.gpus for process in gpu.processes or ()}
        return self._owners.of(pids, self._pods.by_kubelets_uid())


@contextlib.contextmanager
def _survived() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001 - as above
        logger.error("the use of GPUs cannot be published", error=repr(error))
