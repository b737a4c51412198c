"""What an init container that waits for long does besides waiting: asks why, and says so on the node.

Its account is that of the component that waits. It may lack the right to read the node, or the API server may be away:
then nothing more is known.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from gpushare.core.annotations import validation
from gpushare.core.facts import objects
from gpushare.kube import client, resources
from gpushare.kube.auth import login
from gpushare.kube.errors import ApiError, KubeError
from gpushare.kube.events import Recorder
from gpushare.validate.waiting import GENERAL_WAY, Reason

WAITS: Final = "WaitingForValidation"  # reason of the event
MESSAGE: Final = "{who} waits for {check}: {why}; try: {way}"
UNKNOWN: Final = "no reason is known yet"
SECONDS: Final = 10.0


class Telling:
    """`who`: the component that waits. The same reason is told once."""

    def __init__(self, node: str, who: str, access: Callable[[], login.Access] | None = None) -> None:
        self._node, self._who, self._told = node, who, ""
        self._access = access or (lambda: login.load(None, None, os.environ, Path.home()))

    def ask(self, check: str) -> Reason | None:
        try:
            return asyncio.run(self._ask(check))
        except (KubeError, TimeoutError, OSError):
            return None

    async def _ask(self, check: str) -> Reason | None:
        async with asyncio.timeout(SECONDS), client.connect(self._access()) as api:
            reason = await self._read(api, check)
            why, way = reason or (UNKNOWN, "")
            way = way or GENERAL_WAY.format(node=self._node)
            message = MESSAGE.format(who=self._who, check=check, why=why, way=way)
            if message != self._told:
                self._told = message
                await self._record(api, message)
            return reason

    async def _read(self, api: client.Api, check: str) -> Reason | None:
        """By a list: components that wait may list nodes, and not all of them may get one."""
        query = {"fieldSelector": f"metadata.name={self._node}"}
        checks: validation.Checks = {}
        try:
            async for listed, _ in api.list_pages(resources.NODES, objects.Node, query=query):
                checks = (validation.read(listed[0]) if listed else None) or {}
        except ApiError:
            return None
        failed = [(name, one) for name, one in checks.items() if one.state == "failed" and _before(name, check)]
        return next((Reason(f"{name}: {one.why} (since {one.since})", one.way) for name, one in failed), None)

    async def _record(self, api: client.Api, message: str) -> None:
        recorder = Recorder(api)
        sending = asyncio.create_task(recorder.run())
        recorder.record(
            kind="Node", namespace="", name=self._node, uid=self._node, type="Warning", reason=WAITS, message=message,
            longest=600,
        )  # fmt: skip
        await recorder.drain(SECONDS)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


def _before(name: str, check: str) -> bool:
    """Whether a check has to pass before that one, or is the same."""
    order = validation.CHECKS
    return name in order and order.index(name) <= order.index(check)
