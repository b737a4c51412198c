"""`gpushare finder`: wiring, read top to bottom."""

import asyncio
import signal
from pathlib import Path
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry

from gpushare.core.facts import names, objects
from gpushare.kube import client, resources
from gpushare.kube.auth.login import Access
from gpushare.kube.labels import this_node
from gpushare.kube.labels.this_node import ThisNode
from gpushare.kube.labels.writer import PATIENCE, SILENCE, Identity, Writer
from gpushare.kube.reflector import Reflector
from gpushare.node.finder import pci
from gpushare.obs import errors, http, log, metrics
from gpushare.obs.signals import ending, until_signalled

PORT: Final = 12351
LOOK_SECONDS: Final = 60.0  # GPUs are put in and taken out by people, who can wait for a minute
STARTING: Final = "starting: {why}"

logger = log.get(__name__)


class Config(NamedTuple):
    """`port` 0: any free one. `namespace`, `pod`: where this runs."""

    node: str
    sysfs: str = "/sys"
    host: str = "127.0.0.1"
    port: int = PORT
    namespace: str = "kube-system"
    pod: str = ""


class Finder:
    def __init__(self, config: Config, api: client.Api, *, look_seconds: float = LOOK_SECONDS) -> None:
        self._sysfs, self._look_seconds = Path(config.sysfs), look_seconds
        self._found: frozenset[int] | None = None
        self.writer = Writer(api, Identity(config.node, names.FINDER_MANAGER, config.namespace, config.pod))
        self.node = ThisNode(config.node)
        self.node.listeners.append(lambda: self.writer.see(self.node.node))
        self._watch = Reflector(
            api, resources.NODES, objects.Node, self.node, key=lambda n: n.metadata.name,
            query=this_node.query(config.node), silence=SILENCE, patience=PATIENCE,
        )  # fmt: skip

    def not_ready(self) -> str:
        """What is missing; empty if nothing is."""
        if self.writer.done:
            return ""
        failure = self._watch.failure
        return STARTING.format(why=self.writer.failure or (str(failure) if failure else "the node is not labelled yet"))

    async def run(self) -> None:
        """For ever. Raises UserError if PCI devices cannot be seen at all."""
        self.look()
        async with asyncio.TaskGroup() as tasks:
            for watch in (self._watch, self.writer.watch):
                if watch is not None:
                    tasks.create_task(watch.run())
            tasks.create_task(self.writer.run())
            while True:
                await asyncio.sleep(self._look_seconds)
                try:
                    self.look()
                except errors.UserError as error:
                    logger.warn(error.what, **error.fields())  # what was found before stays

    def look(self) -> None:
        """A directory listing, and two small files for each device."""
        folder = self._sysfs / pci.DEVICES
        try:
            found = pci.classes(self._sysfs)
        except OSError as error:
            why = f"{folder}: {error.strerror}"
            raise errors.not_asked(
                "cannot see the PCI devices", why, "--sysfs DIR, where the host's /sys is"
            ) from error
        if found != self._found:
            self._found = found
            logger.info("looked for GPUs", folder=str(folder), classes=[f"{one:04x}" for one in sorted(found)])
        self.writer.want(pci.labels(found))


async def run(config: Config, access: Access) -> signal.Signals:
    """Runs until a signal comes, and returns it. Labels stay: this program restarts, and the GPUs are there."""
    signals, registry = ending(), CollectorRegistry()
    async with client.connect(access) as api:
        finder = Finder(config, api)
        listening = await http.serve_probes(
            config.host, config.port, lambda: "", finder.not_ready, lambda: metrics.exposition(registry)
        )
        logger.info("listening", **config._asdict() | {"port": listening.addresses[0][1]})
        try:
            return await until_signalled(finder.run(), signals)
        finally:
            await listening.cleanup()
