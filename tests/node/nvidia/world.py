"""`gpushare node --sell=gpus` without its process: a file system of its own, a simulated kubelet and API server."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.devcluster.kubelet.device_manager import DeviceManager
from gpushare.devcluster.kubelet.sockets import KubeletSockets
from gpushare.gpu.simulated import Simulated
from gpushare.kube import client
from gpushare.kube.auth import login
from gpushare.node import endpoint, part
from gpushare.node.nvidia import app
from gpushare.node.nvidia.config_source import Places
from gpushare.obs.errors import UserError
from tests.node import world
from tests.support.wait import PATIENCE, eventually

GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"


def sliced(replicas: int, *, renamed: bool = False) -> str:
    """A config: each GPU so many times."""
    resources = f"resources: [{{name: gpu, replicas: {replicas}}}]"
    return f"sharing: {{timeSlicing: {{renameByDefault: {str(renamed).lower()}, {resources}}}}}"


class Machine:
    """One node. `configs` is the folder of configs; kubelets come and go."""

    def __init__(self, root: Path, server: ApiServer, gpus: Simulated) -> None:
        self.root, self.server, self.gpus = root, server, gpus
        self.folder = root / "var/lib/kubelet/device-plugins"
        self.configs, self.cdi = root / "configs", root / "var/run/cdi"
        for folder in (self.folder, self.configs, self.cdi):
            folder.mkdir(parents=True)
        self.manager = DeviceManager(lambda: self.active, random.Random(1))
        self.active: list[str] = []

    @contextlib.asynccontextmanager
    async def kubelet(self, checkpoint: bytes | None = None) -> AsyncIterator[KubeletSockets]:
        self.manager = DeviceManager(lambda: self.active, random.Random(1), checkpoint)
        async with KubeletSockets(self.manager, self.folder, self.root / "pods.sock", list) as sockets:
            yield sockets

    def config(
        self, given: Mapping[str, str] | None = None, places: Places | None = None, **variables: str
    ) -> app.Config:
        where = places or Places(folder=str(self.configs), fallbacks=("named", "empty"))
        return app.Config(world.NAME, given or {}, variables, where, port=0, root=str(self.root))

    @contextlib.asynccontextmanager
    async def selling(self, config: app.Config | None = None) -> AsyncIterator[app.Node]:
        async with client.connect(login.Access(server=self.server.url)) as api:
            made = app.Node(config or self.config(), api, self.gpus)
            async with world.at_work(made):
                yield made

    async def refused(self, config: app.Config | None = None) -> UserError:
        """Why it ends."""
        async with client.connect(login.Access(server=self.server.url)) as api:
            made = app.Node(config or self.config(), api, self.gpus)
            with pytest.raises(ExceptionGroup) as caught:
                async with asyncio.timeout(PATIENCE):
                    await made.run()
        error = part.first(caught.value)
        assert isinstance(error, UserError), error
        return error

    async def offers(self, **resources: int) -> None:
        """kubelet has so many healthy devices, by the last part of the resource's name (`_` for a dot)."""
        wanted = {f"nvidia.com/{name.replace('_', '.')}": count for name, count in resources.items()}
        await eventually(lambda: self.manager.allocatable() == wanted, f"{wanted}")

    def sold(self) -> list[Any]:
        return list((world.said(self.server) or {}).get("sold", ()))

    async def run_pod(self, name: str, amount: int = 1, resource: str = GPU) -> dict[str, str]:
        """The environment that its container gets. Raises what kubelet says if it refuses the pod."""
        pod = {
            "metadata": {"uid": name, "name": name, "namespace": "default"},
            "spec": {"containers": [{"name": "main", "resources": {"limits": {resource: str(amount)}}}]},
        }
        self.active.append(name)
        await self.manager.admit(pod)
        (given,) = (devices for key, devices in self.manager.given.items() if key.uid == name)
        return given.environment


def hasten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(app, "WAIT_SECONDS", 0.02)
    monkeypatch.setattr(endpoint, "PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(endpoint, "LOOK_SECONDS", 0.02)
