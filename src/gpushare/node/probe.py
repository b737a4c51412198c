"""The small HTTP side of the node component: is it alive, is it ready, and its metrics.

Asked by kubelet and Prometheus. Alive means that it can do its work: one whose driver has hung for minutes cannot, and
kubelet starts it anew. Ready means that the node says what it must.
"""

import errno
from collections.abc import Awaitable, Callable

from aiohttp import web

from gpushare.node.metrics import Metrics
from gpushare.obs import errors, metrics

Trouble = Callable[[], str]  # empty: all is well
Handler = Callable[[web.Request], Awaitable[web.Response]]


async def listen(host: str, port: int, dead: Trouble, not_ready: Trouble, shown: Metrics) -> web.AppRunner:
    """Listening when it returns."""
    app = web.Application()
    app.router.add_get("/healthz", _answer(dead))
    app.router.add_get("/readyz", _answer(not_ready))
    app.router.add_get("/metrics", _scrape(shown))
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except (OSError, UnicodeError) as error:
        await runner.cleanup()
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            what, why = f"port {port} on {host} is in use", "another process listens there"
            raise errors.UserError(what, why, "stop that one, or --port N") from error
        raise errors.UserError(
            f"cannot listen on {host}, port {port}", str(error), "--listen 127.0.0.1, or --port N"
        ) from error
    return runner


def _answer(trouble: Trouble) -> Handler:
    async def handler(_: web.Request) -> web.Response:
        wrong = trouble()
        return web.Response(status=503 if wrong else 200, text=f"{wrong or 'ok'}\n")

    return handler


def _scrape(shown: Metrics) -> Handler:
    async def handler(_: web.Request) -> web.Response:
        body, content_type = metrics.exposition(shown.registry)
        return web.Response(body=body, headers={"Content-Type": content_type})

    return handler
