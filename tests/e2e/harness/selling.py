"""The real node with deploy/nvidia-ds.yaml: it sells whole GPUs or replicas, and there is no extender.

kube-scheduler runs with its own configuration and knows nothing of gpushare. Configs are keys of a ConfigMap that is
there from the start; the node's label chooses one.
"""

import contextlib
from collections.abc import AsyncIterator, Sequence

from gpushare.core.facts import names
from gpushare.node.nvidia.rules import choice
from tests.e2e.harness import shipped
from tests.e2e.harness.cluster import NODE
from tests.e2e.harness.images import SMALL
from tests.e2e.harness.installation import OWN_NODE, Installation, running
from tests.e2e.harness.kubelet import LABELS, Node
from tests.e2e.harness.node_world import NodeWorld

COMPONENT = ("nvidia-ds.yaml",)
CONFIG_MAP = {
    "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "gpushare-nvidia", "namespace": shipped.NAMESPACE},
}  # fmt: skip
SELLS = "gpushare=gpus"
# As guides write it, with an image that is there.
POD = f"""
apiVersion: v1
kind: Pod
metadata:
  name: pod-gpu-1
spec:
  containers:
  - name: cuda-vector-add
    image: {SMALL}
    command: ["sleep"]
    args: ["100000"]
    resources:
      limits:
        nvidia.com/gpu: 1
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  tolerations:
  - effect: NoSchedule
    key: nvidia.com/gpu
    operator: Exists
"""


class Selling(Installation):
    """`configs`: by name, as NVIDIA's plugin has them."""

    def __init__(self, node: Node, configs: dict[str, str]) -> None:
        super().__init__(node, COMPONENT, (OWN_NODE,), "MiB")
        self._configs = configs

    async def start(self, gpus: Sequence[int]) -> None:
        await self.prepare(gpus)
        await self.configure(**self._configs)
        await self.cluster.kubectl("label", "--overwrite", "node", NODE, SELLS)
        await self.install()

    async def stop(self) -> None:
        await super().stop()
        await self.cluster.kubectl("label", "--overwrite", "node", NODE, f"gpushare={LABELS['gpushare']}")
        await self.choose(None)

    async def configure(self, **configs: str) -> None:
        """These configs from now on, beside those that are there."""
        self._configs |= configs
        await self._apply([{**CONFIG_MAP, "data": self._configs}])

    async def choose(self, config: str | None) -> None:
        """By the node's label; None: without it."""
        word = f"{choice.LABEL}={config}" if config else f"{choice.LABEL}-"
        await self.cluster.kubectl("label", "--overwrite", "node", NODE, word)

    async def is_published(self) -> bool:
        annotations = (await self.node.object())["metadata"].get("annotations", {})
        return names.NODE_GPUS in annotations and bool((await self.published()).get("sold"))

    async def sells(self, count: int, *, of: int | None = None, resource: str = names.NVIDIA_GPU) -> None:
        """Waits until kubelet has so many healthy devices, `of` that many in all."""
        wanted = str(count), str(count if of is None else of)

        async def offered() -> bool:
            status = (await self.node.object())["status"]
            return (status["allocatable"].get(resource), status["capacity"].get(resource)) == wanted

        await self.until(f"{wanted} of {resource}", offered)


class SellingWorld(NodeWorld):
    async def until_free(self) -> None:
        """Nobody counts here but kubelet, who forgets a pod when it asks for the next one."""


@contextlib.asynccontextmanager
async def installed(node: Node, gpus: Sequence[int], configs: dict[str, str]) -> AsyncIterator[Selling]:
    async with running(Selling(node, configs), gpus, extenders=[]) as selling:
        yield selling
