"""Keeps the labels of this node's GPUs true: woken when GPUs, the node or what is sold change.

The labels stay while this process restarts. They go with the GPUs, and where a person or the operator has switched
discovery off by the node's label `nvidia.com/gpu.deploy.gpu-feature-discovery`.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from gpushare.core.facts import names
from gpushare.gpu.device import Backend, NoGpu, Versions
from gpushare.kube.client import Api
from gpushare.kube.labels.this_node import ThisNode
from gpushare.kube.labels.writer import Identity, Way, Writer
from gpushare.kube.loop import Loop
from gpushare.node.discovery import labels, machine
from gpushare.node.discovery.labels import Machine, Sharing
from gpushare.node.gpus import Gpus
from gpushare.obs import log
from gpushare.obs.errors import UserError

PREFIX: Final = "nvidia.com/"
YES, NO = "true", "false"
NOT_UNDERSTOOD: Final = "the driver's version is not X.Y or X.Y.Z: no labels of it"

logger = log.get(__name__)


class Config(NamedTuple):
    """`namespace`, `pod`: where this process runs."""

    way: Way
    namespace: str = "kube-system"
    pod: str = ""


class Discovery:
    """`sharing`: how GPUs are sold now; None: not known yet. `mig_strategy`: as NVIDIA's flag. `look`: something of
    this may have changed."""

    def __init__(
        self,
        config: Config,
        api: Api,
        gpus: Gpus,
        this_node: ThisNode,
        backend: Backend,
        *,
        sharing: Callable[[], Sharing | None],
        mig_strategy: Callable[[], str] = lambda: labels.NONE,
        root: Path = Path("/"),
        now: Callable[[], float] = time.time,
    ) -> None:
        identity = Identity(this_node.name, names.DISCOVERY_MANAGER, config.namespace, config.pod)
        self.writer = Writer(api, identity, config.way)
        self._gpus, self._this_node, self._backend = gpus, this_node, backend
        self._sharing, self._mig_strategy, self._root, self._started = sharing, mig_strategy, root, int(now())
        self._model: str | None = None
        self._versions: Versions | None = None  # None: not asked since GPUs changed
        self._told = ""  # the version that was called strange in the log
        self._loop = Loop(self._update)
        gpus.listeners.append(self._gpus_changed)
        this_node.listeners.append(self._node_changed)

    def look(self) -> None:
        self._loop.wake()

    async def run(self) -> None:
        """For ever."""
        self._node_changed()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.writer.run())
            if self.writer.watch is not None:
                tasks.create_task(self.writer.watch.run())
            await self._loop.run()

    def _gpus_changed(self) -> None:
        self._versions = None
        self._loop.wake()

    def _node_changed(self) -> None:
        self.writer.see(self._this_node.node)
        self._loop.wake()

    async def _update(self) -> bool:
        if self._is_off():
            self.writer.want({})
            return True
        shared = self._sharing()
        if shared is None or not self._gpus.devices or self._this_node.node is None:
            return True
        versions = await self._asked_versions()
        found = labels.labels(self._gpus.devices, versions, self._machine(), shared, self._mig_strategy())
        self.writer.want({f"{PREFIX}{key}": value for key, value in found.items()})
        return True

    def _is_off(self) -> bool:
        """An empty value of the switch counts as none."""
        node = self._this_node.node
        there = (node.metadata.labels if node is not None else None) or {}
        switched_off = there.get(names.DISCOVERED, "") not in ("", YES)
        return switched_off or there.get(names.GPU_PRESENT) == NO or isinstance(self._gpus.failure, NoGpu)

    async def _asked_versions(self) -> Versions:
        """A driver that fails here is asked again when GPUs change: they have, if it is serious."""
        if self._versions is None:
            try:
                self._versions = await self._backend.versions()
            except UserError as error:
                logger.warn("the driver does not say its version", what=error.what, **error.fields())
                self._versions = Versions("", "")
        driver = self._versions.driver
        if driver and not labels.understands(driver) and driver != self._told:
            self._told = driver
            logger.warn(NOT_UNDERSTOOD, version=driver)
        return self._versions

    def _machine(self) -> Machine:
        if self._model is None:
            self._model = machine.model(self._root)
        return Machine(self._model, machine.classes(self._gpus.devices, self._root), self._started)
