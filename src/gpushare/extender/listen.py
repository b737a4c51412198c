"""Listening, and what to say when that cannot be.

Who holds a port that is in use is looked up where the system tells (Linux, and processes we may look at): it is nearly
always an extender that was forgotten.
"""

import contextlib
import errno
import ssl
from collections.abc import Iterator
from pathlib import Path

from aiohttp import web

from gpushare.extender import server
from gpushare.obs import errors

LISTENS = "0A"  # a socket's state in /proc/net/tcp
OTHER_PORT = "--port N (and change urlPrefix in the scheduler's configuration)"


async def listen(app: web.Application, host: str, ports: list[int], tls: ssl.SSLContext | None) -> web.AppRunner:
    try:
        return await server.serve(app, host, ports, tls)
    except server.CannotListen as error:
        if error.number == errno.EADDRINUSE:
            what, way = f"port {error.port} on {host} is in use", f"stop that one, or {OTHER_PORT}"
            raise errors.UserError(what, _holder(error.port), way) from error
        what, way = f"cannot listen on {host}, port {error.port}", f"--listen 127.0.0.1, or {OTHER_PORT}"
        raise errors.UserError(what, str(error), way) from error


def certificates(cert: str | None, key: str | None, client_ca: str | None) -> ssl.SSLContext | None:
    """HTTPS for clients of one authority, or None: no files, no TLS."""
    if not (cert or key or client_ca):
        return None
    if not (cert and key and client_ca):
        raise errors.UserError(
            "TLS needs three files", "--tls-cert, --tls-key and --client-ca go together", "give all three, or none"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_cert_chain(cert, key, password="")  # else a locked key would be asked for on the terminal
        context.load_verify_locations(client_ca)
    except OSError as error:  # ssl's own errors are such
        way = "check --tls-cert, --tls-key and --client-ca: PEM, and a matching pair"
        raise errors.UserError("the TLS files cannot be used", str(error), way) from error
    return context


def _holder(port: int) -> str:
    sockets = set(_listening(port))
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # another user's, or gone
            if any(str(file.readlink()) in sockets for file in (process / "fd").iterdir()):
                return f"by process {process.name} ({(process / 'comm').read_text().strip()})"
    return "another process listens there"


def _listening(port: int) -> Iterator[str]:
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        for line in table.read_text().splitlines()[1:] if table.exists() else ():
            _, address, _, state, *rest = line.split()
            if state == LISTENS and int(address.rpartition(":")[2], 16) == port:
                yield f"socket:[{rest[5]}]"
