"""Lists the unhealthy GPUs of this node in Aliyun's ConfigMap `unhealthy-gpu-NODE`.

Only on request: our extender reads the node's annotation, but Aliyun's extender reads only this. It takes an empty list
for "GPU 0", so while all GPUs are healthy there is no ConfigMap. A ConfigMap that somebody else made is left alone.
"""

from typing import Final

from gpushare.core.facts import names, objects
from gpushare.core.facts.model import NodeFacts
from gpushare.kube import requests, resources
from gpushare.kube.client import Api
from gpushare.kube.errors import KubeError
from gpushare.kube.loop import Loop
from gpushare.obs import log

LABELS: Final = {"app": "gpushare", "component": "gpushare-node"}
NOT_OURS: Final = "ConfigMap {name} was not made by gpushare; it is left as it is"

logger = log.get(__name__)


class UnhealthyConfigMap:
    def __init__(self, api: Api, node: str) -> None:
        self._api = api
        self._name = names.UNHEALTHY_PREFIX + node
        self._unhealthy: str | None = None  # as it is written; None until the GPUs are known
        self._loop = Loop(self._update)

    def see(self, facts: NodeFacts) -> None:
        """The GPUs as they are now."""
        unhealthy = ",".join(str(gpu.index) for gpu in facts.gpus if not gpu.healthy)
        if unhealthy != self._unhealthy:
            self._unhealthy = unhealthy
            self._loop.wake()

    async def run(self) -> None:
        """For ever."""
        await self._loop.run()

    async def _update(self) -> bool:
        try:
            await self._write(self._unhealthy or "")
        except KubeError as error:
            logger.warn("cannot write which GPUs are unhealthy", name=self._name, why=str(error))
            return False
        return True

    async def _write(self, unhealthy: str) -> None:
        space, name, data = names.UNHEALTHY_NAMESPACE, self._name, {names.UNHEALTHY_KEY: unhealthy}
        there = await self._api.find(requests.read(resources.CONFIG_MAPS, space, name), objects.ConfigMap)
        if there is None:
            if unhealthy:
                created = {"metadata": {"name": name, "labels": LABELS}, "data": data}
                await self._api.send(requests.create(resources.CONFIG_MAPS, space, created))
        elif not LABELS.items() <= (there.metadata.labels or {}).items():
            logger.warn(NOT_OURS.format(name=name))
        elif not unhealthy:
            await self._api.send(requests.delete(resources.CONFIG_MAPS, space, name, uid=there.metadata.uid))
        elif there.data != data:
            await self._api.send(requests.patch(resources.CONFIG_MAPS, space, name, {"data": data}))
