"""Says in the original's ConfigMap, `unhealthy-gpu-NODE`, which GPUs of this node are sick.

Only on request: our own extender reads the node's annotation, but Aliyun's reads only this. It takes an empty list for
"GPU 0", so while no GPU is sick there is no ConfigMap. One that somebody else made is left alone. Made by `app`.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

from gpushare.core.facts import names
from gpushare.core.facts.model import NodeFacts
from gpushare.kube.client import Api
from gpushare.kube.errors import KubeError
from gpushare.kube.reflector import Backoff
from gpushare.obs import log

LABELS: Final = {"app": "gpushare", "component": "gpushare-node"}
NOT_OURS: Final = "ConfigMap {name} was not made by gpushare; it is left as it is"

logger = log.get(__name__)


class UnhealthyConfigMap:
    def __init__(self, api: Api, node: str, *, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep) -> None:
        self._api, self._sleep = api, sleep
        self._name = names.UNHEALTHY_PREFIX + node
        self._sick: str | None = None  # as it is written; None until the GPUs are known
        self._wake = asyncio.Event()
        self._retry = Backoff(random.random)

    def see(self, facts: NodeFacts) -> None:
        """The GPUs as they are now."""
        sick = ",".join(str(gpu.index) for gpu in facts.gpus if not gpu.healthy)
        if sick != self._sick:
            self._sick = sick
            self._wake.set()

    async def run(self) -> None:
        """For ever."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._write(self._sick or "")
                self._retry.reset()
            except KubeError as error:
                logger.warn("cannot write which GPUs are sick", name=self._name, why=str(error))
                await self._sleep(self._retry.delay())
                self._wake.set()

    async def _write(self, sick: str) -> None:
        space, name, data = names.UNHEALTHY_NAMESPACE, self._name, {names.UNHEALTHY_KEY: sick}
        there = await self._api.get_config_map(space, name)
        if there is None:
            if sick:
                await self._api.create_config_map(space, name, LABELS, data)
        elif not LABELS.items() <= (there.metadata.labels or {}).items():
            logger.warn(NOT_OURS.format(name=name))
        elif not sick:
            await self._api.delete_config_map(space, name, there.metadata.uid)
        elif there.data != data:
            await self._api.patch_config_map(space, name, data)
