"""The embedded cluster: API server, controllers and simulated kubelets in one process. Not a Kubernetes.

For trying and testing gpushare, also with the real kubectl. It has no scheduler: start one with `url` or the
kubeconfig. Nothing is kept when it ends.
"""

import asyncio
import contextlib
import os
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from gpushare.core.admission import pinning
from gpushare.devcluster import nodes
from gpushare.devcluster.apiserver import patches
from gpushare.devcluster.apiserver.kinds import table
from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.devcluster.apiserver.status import Object
from gpushare.devcluster.controllers import controllers
from gpushare.devcluster.kubelet import kubelet

KUBECONFIG = "kubeconfig"


class DevCluster:
    """Runs while its block does; a bug in it ends the block.

    `nodes`: node objects, such as those of `nodes`. `folder`: where the kubeconfig is written. `moment` and
    `restart_seconds` are the kubelet's. `dice` make the names of pods and decide what a kubelet leaves to chance.
    `kubelets`: by node, kubelet's folder where device plugins may register. With such nodes the admission policy
    applies only to namespaces with its label, as it must where not all nodes pin directly; `default` has the label.
    `pin_nvidia`: the policy for nvidia.com/gpu is in force, too.
    """

    def __init__(
        self,
        *,
        nodes: Sequence[Object],
        folder: str | os.PathLike[str],
        port: int = 0,
        token: str | None = None,
        moment: float = kubelet.MOMENT,
        restart_seconds: float = kubelet.RESTART_SECONDS,
        kubelets: Mapping[str, Path] | None = None,
        pin_nvidia: bool = False,
        dice: random.Random | None = None,
    ) -> None:
        self._labels = pinning.NAMESPACES if kubelets else {}
        self.server = ApiServer(
            port=port, token=token, pin_directly=True, pin_namespaces=self._labels, pin_nvidia=pin_nvidia,
            nodes_copy_capacity=True, dice=dice,
        )  # fmt: skip
        self.kubelet = kubelet.Kubelet(
            self.server, moment=moment, restart_seconds=restart_seconds, folders=kubelets, dice=dice
        )
        self.kubeconfig = Path(folder) / KUBECONFIG
        self._nodes = nodes
        self._controllers = controllers.Controllers(self.server)
        self._stack = contextlib.AsyncExitStack()

    @property
    def url(self) -> str:
        return self.server.url

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self.server)
            self.server.write_kubeconfig(self.kubeconfig)
            self.server.logs = self.kubelet.logs
            now = self.server.registry.now()
            for node in self._nodes:
                self.server.registry.create(table.BY_RESOURCE["nodes"], "", nodes.heard_at(node, now))
            if self._labels:
                change = {"metadata": {"labels": self._labels}}
                self.server.registry.patch(table.BY_RESOURCE["namespaces"], "", "default", patches.MERGE, change)
            for plugins in self.kubelet.plugins.values():
                await stack.enter_async_context(plugins)
            group = await stack.enter_async_context(asyncio.TaskGroup())
            for part in (self._controllers.run(), self.kubelet.run()):
                stack.callback(group.create_task(part).cancel)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()
