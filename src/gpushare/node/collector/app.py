"""`gpushare collector`: wiring, read top to bottom.

What the node offers is read from its annotation, which the node part writes. While there is none, the collector waits,
and says so. It never writes to the node or to pods. It may run beside a node part that does not sample
(`gpushare node --sample-seconds=0`). Beside one that samples, everything would be said twice:
`node/usage/gpunode_writer.py` notices that.
"""

import asyncio
import contextlib
import signal
from typing import Final, NamedTuple

from gpushare.core.facts import names
from gpushare.gpu.device import Backend
from gpushare.kube import client
from gpushare.kube.auth.login import Access
from gpushare.node import observer, part
from gpushare.node.publishing import desired
from gpushare.node.publishing.desired import Offered
from gpushare.node.usage.sampler import Owners
from gpushare.obs import log

PORT: Final = 12350
NOTHING_OFFERED: Final = (
    f"node {{node}} has no usable annotation {names.NODE_GPUS}: waiting for gpushare node, which writes it"
)
OFFERED: Final = "the annotation of the node says which GPUs it has"

logger = log.get(__name__)


class Config(NamedTuple):
    """`port` 0: any free port."""

    node: str
    host: str = "127.0.0.1"
    port: int = PORT
    observing: observer.Config = observer.Config()
    fail_on_init_error: bool = True  # else a node without a driver is no error


class Collector(part.Part):
    def __init__(self, config: Config, api: client.Api, backend: Backend, owners: Owners | None = None) -> None:
        idles = not config.fail_on_init_error
        super().__init__(config.node, api, backend, observing=config.observing, owners=owners, idles=idles)
        self._read: Offered | None = None
        self._changed = True  # since it was read
        self._said = ""
        self.this_node.listeners.append(self._forget)
        self.pods.listeners.append(lambda uid: self._forget())

    async def _run(self, tasks: asyncio.TaskGroup, at_the_end: contextlib.ExitStack) -> None:
        await self.gpus.begin(part.START_SECONDS)
        await self.watches.synced(part.START_SECONDS)

    def _missing(self) -> str:
        if self.observer is None:
            return part.STARTING.format(what=self._waits_for())
        return "" if self._offered() is not None else NOTHING_OFFERED.format(node=self.node)

    def _forget(self) -> None:
        self._changed = True

    def _offered(self) -> Offered | None:
        """Read again only if the node or a pod has changed: it is asked for at each pass."""
        if self._changed:
            node, pods = self.this_node.node, [node_pod.facts for node_pod in self.pods.pods.values()]
            self._read, self._changed = desired.offered(node, pods) if node is not None else None, False
            self._log(OFFERED if self._read is not None else NOTHING_OFFERED.format(node=self.node))
        return self._read

    def _log(self, what: str) -> None:
        """Once, until it changes."""
        if what != self._said:
            self._said = what
            logger.info(what)


async def run(config: Config, access: Access, backend: Backend) -> signal.Signals:
    """Runs until a signal comes, and returns it."""
    async with client.connect(access) as api:
        return await part.run(Collector(config, api, backend), backend, config.host, config.port, config._asdict())
