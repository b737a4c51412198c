"""What this node part knows of the MPS daemon of its node: the report that `gpushare mps` writes, read every 2 seconds.

A report that is missing, old or bad counts as a daemon that does not work. Then no new MPS share goes to this node; its
capacity stays, because pods that run there still hold theirs.

What happens next: the publisher writes the reason into the node's annotation (`node/publishing/desired.py`), and the
extender refuses such pods with it (`core/placement/fit.py` `MPS_DOWN`). Where replicas are sold, kubelet gets all of
them as unhealthy (`node/nvidia/plugin.py`).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from gpushare.core.facts.mps import clients, status
from gpushare.gpu.device import Device
from gpushare.kube.events import Recorder
from gpushare.obs import log

LOOK_SECONDS: Final = 2.0
DOWN, UP, FEWER = "MpsDown", "MpsUp", "FewerMpsSlots"  # reasons of events
SAY_UP: Final = "the MPS daemon works: new pods get MPS shares here"
SAY_DOWN: Final = "no new pod gets an MPS share here: {why}"
SAY_FEWER: Final = "{most} MPS slots on each GPU instead of {slots}: a GPU here has compute capability {capability}"

logger = log.get(__name__)


class MpsDaemon:
    """`down`: why it serves nobody. `replicas`: into so many parts it has to divide each GPU. Listeners get `down`
    after each change. `folder` empty: nobody looks after the daemon, so it counts as working."""

    def __init__(
        self,
        folder: str,
        recorder: Recorder,
        node: str,
        *,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.down = ""
        self.replicas = 1
        self.listeners: list[Callable[[str], None]] = []
        self._path = Path(folder, status.FILE) if folder else None
        self._recorder, self._node, self._now, self._sleep = recorder, node, now, sleep
        self._told = ""  # that it is down

    async def run(self) -> None:
        """For ever. Only a reason that lasts for two looks is an event: both programs may have just been started."""
        self._told = ""
        while True:
            await self._sleep(LOOK_SECONDS)
            before, now = self.down, self.look()
            if now != before:
                logger.info("MPS daemon", down=now)
                for listener in self.listeners:
                    listener(now)
            self._tell(now if now == before or not now else self._told)

    def look(self) -> str:
        """Why it serves nobody, now."""
        self.down = status.problem(self._content(), self._now(), self.replicas) if self._path is not None else ""
        return self.down

    def tell_slots(self, slots: int, devices: Sequence[Device]) -> None:
        """Says so if a GPU serves fewer clients than that."""
        most = clients.most([device.capability for device in devices])
        if slots <= most:
            return
        oldest = next(device.capability for device in devices if clients.most([device.capability]) == most)
        message = SAY_FEWER.format(most=most, slots=slots, capability=oldest)
        logger.warn(message)
        self._record("Warning", FEWER, message)

    def _content(self) -> bytes | None:
        assert self._path is not None
        try:
            with self._path.open("rb") as file:
                return file.read(status.LARGEST)
        except FileNotFoundError:
            return None
        except OSError:
            return b""  # which cannot be read either

    def _tell(self, down: str) -> None:
        if down == self._told:
            return
        self._told = down
        if down:
            self._record("Warning", DOWN, SAY_DOWN.format(why=down))
        else:
            self._record("Normal", UP, SAY_UP)

    def _record(self, kind: str, reason: str, message: str) -> None:
        self._recorder.record(
            kind="Node", namespace="", name=self._node, uid=self._node, type=kind, reason=reason, message=message
        )  # fmt: skip
