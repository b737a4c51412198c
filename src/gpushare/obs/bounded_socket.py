"""A socket that listens, and has no more than so many connections open at a time.

Everybody who reaches a port can open connections and send nothing. One with TLS costs Python 300 KB before anybody has
shown who he is. If there are too many, the oldest one is closed: whoever does not ask cannot keep out those who do.
Connections that a component wants to keep for long, such as streams of those who have shown who they are, are spared.
"""

import asyncio
import contextlib
import gc
import socket
from collections import deque
from collections.abc import Set


class BoundedSocket(socket.socket):
    def __init__(self, fileno: int, most: int, spared: Set[int] = frozenset()) -> None:
        """`spared`: the file numbers of connections that are not closed for new ones; read whenever it matters."""
        super().__init__(fileno=fileno)
        self._most, self._spared = most, spared
        self._dropped = 0
        self._accepted: deque[socket.socket] = deque()  # some of them may be closed

    def accept(self) -> tuple[socket.socket, object]:
        accepted = super().accept()
        if len(self._accepted) >= self._most:
            self._accepted = deque(one for one in self._accepted if one.fileno() != -1)
        if len(self._accepted) >= self._most:
            self._drop_oldest()
        self._accepted.append(accepted[0])
        return accepted

    def _drop_oldest(self) -> None:
        oldest = next((one for one in self._accepted if one.fileno() not in self._spared), None)
        if oldest is None:
            return
        self._accepted.remove(oldest)
        with contextlib.suppress(OSError):  # the other side has closed it
            oldest.shutdown(socket.SHUT_RDWR)  # who reads from it sees its end, and closes it
        self._dropped += 1
        if self._dropped % self._most == 0:
            gc.collect(1)


async def bound(host: str, port: int, most: int, spared: Set[int] = frozenset()) -> list[BoundedSocket]:
    """To all addresses of this host, of both families. They do not listen yet. `most`: connections of each."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(asyncio.Protocol, host, port, reuse_address=True, start_serving=False)
    try:
        return [BoundedSocket(one.dup().detach(), most, spared) for one in server.sockets]
    finally:
        server.close()
