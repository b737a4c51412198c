"""A socket that listens, and has no more than so many connections open at a time.

Everybody who reaches a port can open connections and send nothing. One with TLS costs Python 300 KB before anybody has
shown who he is. If there are too many, the oldest one is closed: whoever does not ask cannot keep out those who do.
"""

import asyncio
import contextlib
import gc
import socket
from collections import deque


class BoundedSocket(socket.socket):
    def __init__(self, fileno: int, most: int) -> None:
        super().__init__(fileno=fileno)
        self._most = most
        self._dropped = 0
        self._accepted: deque[socket.socket] = deque()  # some of them may be closed

    def accept(self) -> tuple[socket.socket, object]:
        accepted = super().accept()
        if len(self._accepted) >= self._most:
            self._accepted = deque(one for one in self._accepted if one.fileno() != -1)
        if len(self._accepted) >= self._most:
            with contextlib.suppress(OSError):  # the other side has closed it
                self._accepted.popleft().shutdown(socket.SHUT_RDWR)  # who reads from it sees its end, and closes it
            self._dropped += 1
            if self._dropped % self._most == 0:
                gc.collect(1)
        self._accepted.append(accepted[0])
        return accepted


async def bound(host: str, port: int, most: int) -> list[BoundedSocket]:
    """To all addresses of this host, of both families. They do not listen yet. `most`: connections of each."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(asyncio.Protocol, host, port, reuse_address=True, start_serving=False)
    try:
        return [BoundedSocket(one.dup().detach(), most) for one in server.sockets]
    finally:
        server.close()
