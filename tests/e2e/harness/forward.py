"""A small stand-in for kube-proxy, as a process: what comes to the address of a Service goes to where it is served.

`python -m tests.e2e.harness.forward 10.0.0.1:443 127.0.0.1:6443`. The address has to be one of this machine's
(`network.add`). Pods have a network of their own, and reach nothing that listens on loopback.
"""

import asyncio
import contextlib
import sys


async def main(here: str, there: str) -> None:
    host, _, port = there.rpartition(":")

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await pass_on(reader, writer, host, int(port))

    address, _, listening = here.rpartition(":")
    server = await asyncio.start_server(connected, address, int(listening))
    await server.serve_forever()


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int) -> None:
    """Both ways, until both sides have ended."""
    try:
        to_reader, to_writer = await asyncio.open_connection(host, port)
        await asyncio.gather(_copy(reader, to_writer), _copy(to_reader, writer))
    except OSError:
        pass
    finally:
        writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
