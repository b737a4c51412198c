"""Which GPUs of this node are connected by NVLink: published, so that pods with several GPUs get connected ones.

The driver is asked once for each set of GPUs, beside everything else. A driver that fails or hangs here costs the links
and nothing more: it is not asked again, because every call that hangs leaves a thread behind.

What happens next: `node/publishing/desired.py` writes the links into the node's annotation.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from gpushare.gpu.device import Backend, Link
from gpushare.kube.loop import Loop
from gpushare.node.gpus import Gpus
from gpushare.obs import log
from gpushare.obs.errors import UserError

UNKNOWN: Final = "the driver does not say which GPUs are connected by NVLink"

logger = log.get(__name__)


class Links:
    """`known`: by uuid, how many NVLinks lead to which other GPUs. A GPU that is missing there was never asked, or did
    not answer. Listeners are called after each change."""

    def __init__(self, backend: Backend, gpus: Gpus) -> None:
        self.known: Mapping[str, Mapping[str, int]] = {}
        self.listeners: list[Callable[[], None]] = []
        self._backend, self._gpus = backend, gpus
        self._answers: dict[frozenset[str], list[Link] | None] = {}  # by GPUs; None: the driver failed
        self._loop = Loop(self._update)
        self._loop.wake()
        gpus.listeners.append(self._loop.wake)

    async def run(self) -> None:
        """For ever."""
        await self._loop.run()

    async def _update(self) -> bool:
        there = frozenset(device.uuid for device in self._gpus.devices)
        if there not in self._answers:
            self._answers[there] = None
            try:
                self._answers[there] = await self._backend.links() if len(there) > 1 else []
            except UserError as error:
                logger.warn(UNKNOWN, what=error.what, **error.fields())
        found = self._answers[there]
        known = self.known if found is None else {**self.known, **by_gpu(there, found)}
        if known != self.known:
            self.known = known
            for listener in self.listeners:
                listener()
        return True


def by_gpu(gpus: Iterable[str], links: Iterable[Link]) -> dict[str, dict[str, int]]:
    """Each of these GPUs, also those without an NVLink."""
    found: dict[str, dict[str, int]] = {uuid: {} for uuid in gpus}
    for link in links:
        if link.nvlinks and link.one in found and link.other in found:
            found[link.one][link.other] = found[link.other][link.one] = link.nvlinks
    return found
