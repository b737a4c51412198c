"""The same bytes to two servers with the same answers: ours for plain requests, and aiohttp alone.

There are no sockets: the protocols get their bytes from the test, so that a test may split them anywhere and no time
passes.
"""

import asyncio
import re
from collections.abc import Callable
from typing import Any, cast

from gpushare.core.ledger.ledger import Ledger
from gpushare.extender import server
from gpushare.extender.binder import Binder, Tell
from gpushare.extender.metrics import Metrics
from gpushare.extender.serving.demand import Demand
from gpushare.extender.serving.front import Front
from gpushare.extender.verbs import Verbs
from gpushare.extender.wire import BindArgs
from gpushare.obs import http

TURNS = 400  # of the loop, after which everything that was sent is answered
DATE = re.compile(rb"\r\nDate: [^\r]*")

Piece = bytes | None  # None: time passes


class Echo:
    """Verbs that answer with what they were asked."""

    def _answer(self, body: bytes) -> bytes:
        if body.startswith(b"bug"):
            raise ZeroDivisionError
        return b'{"asked":%d,"sum":%d}' % (len(body), sum(body))

    filter = choose = prioritize = preempt = _answer


class Later:
    """A binder that answers some turns later."""

    def begin(self, args: BindArgs, tell: Tell) -> None:
        self._wait(len(args.node), lambda: tell(args.pod_name))

    def _wait(self, turns: int, then: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(then if turns <= 0 else lambda: self._wait(turns - 1, then))


class Wire(asyncio.Transport):
    """Keeps what is written to it."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.protocol: Any = protocol
        self.written = b""
        self.closed = self.paused = False
        protocol.connection_made(self)

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


class Both:
    def __init__(self) -> None:
        self.handlers = server.Handlers(
            cast(Verbs, Echo()), cast(Binder, Later()), Metrics(Ledger()), lambda: "", Demand()
        )  # fmt: skip

    async def answers(self, *pieces: Piece) -> tuple[tuple[bytes, bool], tuple[bytes, bool]]:
        """What ours and aiohttp's write, without dates, and whether they close the connection."""
        runner = http.runner(self.handlers.application())
        await http.listen(runner, "127.0.0.1", [])
        assert runner.server is not None
        front = Front(self.handlers.plain(), runner.server, http.KEEP_ALIVE)
        ours, theirs = Wire(front()), Wire(runner.server())
        for piece in pieces:
            if piece is None:
                for _ in range(3):
                    front.tick()
                continue
            for wire in (ours, theirs):
                while wire.paused and not wire.closed:  # noqa: ASYNC110 - turns of the loop are what is counted here
                    await asyncio.sleep(0)
                if not wire.closed:
                    wire.protocol.data_received(piece)
            await asyncio.sleep(0)
        for _ in range(TURNS):
            await asyncio.sleep(0)
        answers = [(DATE.sub(b"", wire.written), wire.closed) for wire in (ours, theirs)]
        ours.close()
        theirs.close()
        await asyncio.gather(front.finish(0.1), runner.cleanup())
        return answers[0], answers[1]
