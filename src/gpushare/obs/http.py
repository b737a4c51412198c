"""The HTTP side of a component: listening, TLS for its clients, probes and the metrics page.

Asked by kubelet and Prometheus; what else a component answers is its own. Who holds a port that is in use is looked up
where the system tells (Linux, and processes we may look at): usually it is a component that was forgotten.
"""

import asyncio
import contextlib
import errno
import logging
import ssl
from collections.abc import Awaitable, Callable, Iterator, Sequence, Set
from pathlib import Path
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry

from gpushare.obs import bounded_socket, errors, metrics

LISTENS: Final = "0A"  # a socket's state in /proc/net/tcp
OTHER_PORT: Final = "--port N"
BACKLOG: Final = 1024  # connections that wait to be accepted
KEEP_ALIVE: Final = 150.0  # longer than Go's 90 s, so that we never close a connection that is about to be used

Problem = Callable[[], str]  # empty: none
Handler = Callable[[web.Request], Awaitable[web.Response]]
Page = Callable[[], tuple[bytes, str]]  # the metrics, and their content type


class BadBody(Exception):
    """A body that could not be read; the text says why."""


async def serve(
    app: web.Application,
    host: str,
    ports: Sequence[int],
    *,
    tls: ssl.SSLContext | None = None,
    other_port: str = OTHER_PORT,
) -> web.AppRunner:
    """For callers that are programs of Kubernetes. `cleanup()` lets running requests finish."""
    made = runner(app)
    await listen(made, host, ports, tls=tls, other_port=other_port)
    return made


def runner(app: web.Application) -> web.AppRunner:
    """For the same callers. It does not listen yet."""
    return web.AppRunner(
        app,
        keepalive_timeout=KEEP_ALIVE,
        access_log=None,
        shutdown_timeout=4.5,
        auto_decompress=False,  # none of them compresses, and a small body may decompress to any size
    )


async def body(req: web.Request, largest: int, seconds: float) -> bytes:
    """The whole body, or `BadBody`. `largest`: in bytes, as the application was told."""
    try:
        async with asyncio.timeout(seconds):
            return await req.read()
    except TimeoutError:
        raise BadBody(f"the body did not arrive within {seconds:.0f} s") from None
    except web.HTTPRequestEntityTooLarge:
        raise BadBody(f"the body is larger than {largest >> 20} MiB") from None
    except (web.RequestPayloadError, OSError):
        raise BadBody("the body was cut off") from None


async def listen(
    runner: web.BaseRunner,
    host: str,
    ports: Sequence[int],
    *,
    tls: ssl.SSLContext | None = None,
    other_port: str = OTHER_PORT,
    most: int | None = None,
    backlog: int = BACKLOG,
    spared: Set[int] = frozenset(),
) -> None:
    """Listening when it returns. Stop with `runner.cleanup()`. `other_port`: how to choose another port. `most`:
    connections that are open at a time; None: any number. `backlog`: so many connections may wait to be accepted, and
    so many are accepted at once. `spared`: see `bounded_socket`."""
    logging.getLogger("aiohttp.server").addFilter(_without_content)
    await runner.setup()
    for port in ports:
        try:
            for site in await _sites(runner, host, port, tls=tls, most=most, backlog=backlog, spared=spared):
                await site.start()
        except (OSError, UnicodeError) as error:
            await runner.cleanup()
            raise await cannot_listen(host, port, error, other_port) from error


async def cannot_listen(host: str, port: int, error: OSError | UnicodeError, other_port: str) -> errors.UserError:
    """Why, and who listens there instead."""
    # In a thread: a machine may have many processes to look at, and this one may have others to answer.
    return await asyncio.to_thread(_cannot_listen, host, port, error, other_port)


async def _sites(
    runner: web.BaseRunner,
    host: str,
    port: int,
    *,
    tls: ssl.SSLContext | None,
    most: int | None,
    backlog: int,
    spared: Set[int],
) -> list[web.BaseSite]:
    if most is None:
        return [web.TCPSite(runner, host, port, ssl_context=tls, backlog=backlog, reuse_address=True)]
    sockets = await bounded_socket.bound(host, port, most, spared)
    return [web.SockSite(runner, bound, ssl_context=tls, backlog=backlog) for bound in sockets]


async def serve_probes(host: str, port: int, dead: Problem, not_ready: Problem, page: Page) -> web.AppRunner:
    """For a component that answers nothing else."""
    app = web.Application()
    app.add_routes(_probes(dead, not_ready, page))
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await listen(runner, host, [port])
    return runner


def probes(dead: Problem, not_ready: Problem, registry: CollectorRegistry) -> list[web.RouteDef]:
    """Dead: kubelet should start it again. Not ready: it cannot do its work at the moment."""
    return _probes(dead, not_ready, lambda: metrics.exposition(registry))


def scraped(page: Page) -> web.Response:
    """The answer to Prometheus."""
    body, content_type = page()
    return web.Response(body=body, headers={"Content-Type": content_type})


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


def _without_content(record: logging.LogRecord) -> bool:
    """aiohttp's log quotes what it could not read. That may be a header with a secret."""
    if record.exc_info and record.exc_info[0]:
        record.msg, record.args, record.exc_info = "cannot read a request: %s", (record.exc_info[0].__name__,), None
    return True


def _probe(problem: Problem) -> Handler:
    async def handler(_: web.Request) -> web.Response:
        sentence = problem()
        return web.Response(status=503 if sentence else 200, text=f"{sentence or 'ok'}\n")

    return handler


def _probes(dead: Problem, not_ready: Problem, page: Page) -> list[web.RouteDef]:
    async def scrape(_: web.Request) -> web.Response:
        return scraped(page)

    return [
        web.get("/healthz", _probe(dead)),
        web.get("/readyz", _probe(not_ready)),
        web.get("/metrics", scrape),
    ]


def _cannot_listen(host: str, port: int, error: OSError | UnicodeError, other_port: str) -> errors.UserError:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return errors.UserError(
            f"port {port} on {host} is in use", _holder(port), f"stop that one, or {other_port}"
        )  # fmt: skip
    why = (getattr(error, "strerror", None) or str(error)).rpartition(": ")[2]  # asyncio says the address before it
    return errors.UserError(f"cannot listen on {host}, port {port}", why, f"--listen 127.0.0.1, or {other_port}")


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
