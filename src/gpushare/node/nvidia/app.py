"""`gpushare node --sell=gpus`: wiring, read top to bottom.

It needs the driver, kubelet and the API server. Its config is read again every second, and at once when the node's
label changes or SIGHUP comes. A new config that cannot be used changes nothing: the log and an event say why.
"""

import asyncio
import contextlib
import math
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from gpushare.core.facts.model import Pin
from gpushare.gpu.device import Backend
from gpushare.gpu.health import Health
from gpushare.kube import client
from gpushare.kube.auth.login import Access
from gpushare.node import observer, part
from gpushare.node.discovery.discovery import Config as DiscoveryConfig
from gpushare.node.mps_daemon import MpsDaemon
from gpushare.node.nvidia import beside, cdi_file, config_source
from gpushare.node.nvidia.cdi_file import CdiFile
from gpushare.node.nvidia.config_source import Found, Places
from gpushare.node.nvidia.plugin import Plugin
from gpushare.node.nvidia.rules import choice, xids
from gpushare.node.nvidia.rules.flags import KUBELET_SOCKET
from gpushare.node.nvidia.rules.settings import Settings
from gpushare.node.publishing.desired import PublishConfig
from gpushare.node.publishing.publisher import Publisher
from gpushare.node.usage.sampler import Owners
from gpushare.obs import log
from gpushare.obs.errors import UserError

LOOK_SECONDS: Final = 1.0
WAIT_SECONDS: Final = 0.5
NOT_USED, USED = "ConfigNotUsed", "ConfigUsed"  # reasons of events
BAD_CONFIG: Final = "config {name}: {what}: {why}"
KEEPING, SELLS_NOTHING = "keeping config {name}", "nothing is sold until it is corrected"

logger = log.get(__name__)


class Config(NamedTuple):
    """`given`: NVIDIA's flags on the command line, by name. `environment`: its variables. `port` 0: any free one."""

    node: str
    given: Mapping[str, str] = {}
    environment: Mapping[str, str] = {}
    places: Places = Places()
    host: str = "127.0.0.1"
    port: int = 12346
    mps_status: str = ""  # the folder where gpushare mps says how the daemon is
    root: str = "/"  # where this machine's file system begins
    observing: observer.Config = observer.Config()
    discovery: DiscoveryConfig | None = None  # how labels say what GPUs there are


class Node(part.Part):
    def __init__(self, config: Config, api: client.Api, backend: Backend, owners: Owners | None = None) -> None:
        variables = config.environment
        counts = xids.counting(variables.get(xids.DISABLE, ""), variables.get(xids.ENABLE, ""))
        health = Health(counts, mig=True)
        super().__init__(
            config.node, api, backend, health, observing=config.observing, owners=owners,
            discovering=config.discovery, root=config.root,
        )  # fmt: skip
        self.config = config
        self.plugin: Plugin | None = None
        self._last_wait = "the config"
        self._patient = False  # with the driver, at the start
        self._used = Found("", "")  # the config in force
        self._refused: UserError | None = None  # what was said of the last bad one
        self._bad: tuple[Found, UserError] | None = None  # that one
        self._look = asyncio.Event()
        self._settle(self._used)  # wrong flags and variables are told before anybody is asked
        self.this_node.listeners.append(self._look.set)

    def look(self) -> None:
        """Reads the config again, at once."""
        self._look.set()

    def dead(self) -> str:
        return "" if self._patient else super().dead()

    def not_ready(self) -> str:
        """A config that cannot be used is told here, too, although the one before is in force: what this node sells is
        not what somebody asked for."""
        return self._bad_config() or super().not_ready()

    async def _run(self, tasks: asyncio.TaskGroup, at_the_end: contextlib.ExitStack) -> None:
        await self.watches.synced(part.START_SECONDS)
        found, settings = await self._first_config()
        self._patient = not settings.fail_on_init_error
        await self.gpus.begin(part.START_SECONDS if settings.fail_on_init_error else math.inf)
        self._patient = False
        folder = self._root / str(Path(settings.kubelet_socket or KUBELET_SOCKET).parent).lstrip("/")
        tasks.create_task(await self._lock_kubelets_folder(folder, at_the_end))
        await self._alone()
        cdi = CdiFile(self._root / cdi_file.FOLDER.lstrip("/"), self._root)
        daemon = MpsDaemon(self.config.mps_status, self.recorder, self.config.node)
        plugin = self.plugin = Plugin(self.gpus, self._backend, cdi, self._root, daemon, self.config.mps_status)
        self._log(found, settings)
        sold = await plugin.use(settings)
        publish_config = PublishConfig(self.config.node, "MiB", Pin.NVIDIA, sold=(sold,))
        publisher = self.publisher = Publisher(self.api, publish_config, self.gpus, self.pods, self.this_node)
        self.sight.done = lambda: {"node": publisher.writes}
        for work in (publisher.run(), plugin.run(), self._follow(plugin, publisher), daemon.run()):
            tasks.create_task(work)

    def _mig_strategy(self) -> str:
        return self.plugin.mig_strategy if self.plugin is not None else super()._mig_strategy()

    def _is_registered(self) -> bool:
        return self.plugin is not None and self.plugin.registered

    def _label(self) -> str:
        node = self.this_node.node
        return ((node.metadata.labels if node else None) or {}).get(choice.LABEL, "")

    def _settle(self, found: Found) -> Settings:
        return config_source.settle(found, self.config.given, self.config.environment)

    async def _alone(self) -> None:
        """Waits for a process that sells shares here and is about to end."""
        self._last_wait = "the end of shares on this node"
        clock = asyncio.get_running_loop().time
        until = clock() + part.START_SECONDS
        while (error := self._conflict()) is not None:
            if clock() >= until:
                raise error
            await asyncio.sleep(WAIT_SECONDS)

    def _conflict(self) -> UserError | None:
        node = self.this_node.node
        return beside.conflict(node, [pod.facts for pod in self.pods.pods.values()]) if node is not None else None

    # The config

    async def _first_config(self) -> tuple[Found, Settings]:
        """Waits for one that can be used: a process that ends again and again tells nobody why."""
        self._patient = True
        while True:
            try:
                found = config_source.read(self.config.places, self._label())
                settings = self._settle_once(found)
            except UserError as error:
                self._complain(error)
                await self._pause()
            else:
                self._refused = None
                return found, settings

    async def _pause(self) -> None:
        """Until something may have changed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                await self._look.wait()
        self._look.clear()

    async def _follow(self, plugin: Plugin, publisher: Publisher) -> None:
        """For ever: uses the config that is there now."""
        while True:
            await self._pause()
            try:
                await self._renew(plugin, publisher)
                self._refused = None
            except UserError as error:
                self._complain(error)

    async def _renew(self, plugin: Plugin, publisher: Publisher) -> None:
        found = config_source.read(self.config.places, self._label())
        if found == self._used:
            return
        settings = self._settle_once(found)
        publisher.sell(await plugin.use(settings))
        self._log(found, settings)
        self._tell("Normal", USED, f"config {found.name}: {settings.replicas} × {settings.resource} for each GPU")

    def _settle_once(self, found: Found) -> Settings:
        """A bad config is worked out once, and not every second: a long one takes seconds."""
        if self._bad is None or self._bad[0] != found:
            try:
                return self._settle(found)
            except UserError as error:
                self._bad = found, error
        raise self._bad[1]

    def _log(self, found: Found, settings: Settings) -> None:
        self._used = found
        for note in settings.notes:
            logger.warn("the config has no effect in one place", config=found.name, what=note)
            self._tell("Warning", NOT_USED, f"config {found.name}: {note}")
        logger.info("config in force", config=found.name, **msgspec.to_builtins(settings))

    def _complain(self, error: UserError) -> None:
        """Once, until something changes."""
        if str(error) != str(self._refused):
            self._refused = error
            logger.warn(error.what, keeping=self._used.name, **error.fields())
            kept = KEEPING.format(name=self._used.name) if self._used.name else SELLS_NOTHING
            self._tell("Warning", NOT_USED, f"{error.what}: {error.why}; {kept}")

    def _bad_config(self) -> str:
        error = self._refused
        if error is None:
            return ""
        if self._bad is None or self._bad[1] is not error:  # it could not be read, or the GPUs cannot serve it
            return f"{error.what}: {error.why}"
        return BAD_CONFIG.format(name=self._bad[0].name, what=error.what.removeprefix("config: "), why=error.why)

    def _tell(self, kind: str, reason: str, message: str) -> None:
        name = self.config.node
        self.recorder.record(
            kind="Node", namespace="", name=name, uid=name, type=kind, reason=reason, message=message
        )  # fmt: skip


def look_at_sighup(node: Node) -> None:
    """Only a process of its own does so: who runs a node as a task may mean something else by that signal."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, node.look)


async def run(config: Config, access: Access, backend: Backend) -> signal.Signals:
    """Runs until a signal comes, and returns it."""
    async with client.connect(access) as api:
        settings = config._asdict() | {"places": config.places._asdict()}
        node = Node(config, api, backend)
        look_at_sighup(node)
        return await part.run(node, backend, config.host, config.port, settings)
