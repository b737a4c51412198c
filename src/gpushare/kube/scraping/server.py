"""Listens where Prometheus asks for the metrics page.

On loopback everybody on this machine may ask, over plain HTTP. Anywhere else it is HTTPS, and who asks shows a token
that the API server knows, or a certificate of the authority that the flags name. A port in use, such as by NVIDIA's
exporter, is told and tried again: the component does its work without.
"""

import asyncio
import ipaddress
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from aiohttp import web

from gpushare.kube.client import Api
from gpushare.kube.scraping import self_signed
from gpushare.kube.scraping.certificate import Certificate, Files, Made
from gpushare.kube.scraping.readers import Readers
from gpushare.obs import http, log
from gpushare.obs.beside import beside
from gpushare.obs.errors import UserError

TRY_SECONDS: Final = 30.0  # between two tries to listen
CONNECTIONS: Final = 64  # open at a time; Prometheus needs one
# Accepted at once. Anybody may connect here, and each handshake costs a millisecond: with hundreds of them at once,
# what else the component has to answer would wait. Prometheus has one connection, and keeps it.
BACKLOG: Final = 4
OTHER: Final = "--metrics-listen HOST:PORT, or off"
FLAGS: Final = "--metrics-tls-cert and --metrics-tls-key"

logger = log.get(__name__)


class Listening(NamedTuple):
    """Where Prometheus asks, and how it proves who it is. Files are PEM. `client_ca`: certificates instead of
    tokens."""

    host: str
    port: int
    tls_cert: str = ""
    tls_key: str = ""
    client_ca: str = ""


class Server:
    """`name`: stands in the certificate beside the address. `made`: makes one where no files are given. Raises
    UserError if the files cannot be used."""

    def __init__(
        self,
        listen: Listening,
        name: str,
        api: Api,
        page: http.Page,
        *,
        made: Made = self_signed.made,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.port: int | None = None  # on which it listens; None: not yet
        self._listen, self._page, self._sleep = listen, page, sleep
        self._open = is_loopback(listen.host) and not listen.client_ca
        self._readers = None if self._open or listen.client_ca else Readers(api)
        self._certificate: Certificate | None = None
        self._refused = ""
        if not self._open:
            files = Files(listen.tls_cert, listen.tls_key, FLAGS)
            self._certificate = Certificate(files, (listen.host, name), OTHER, made)
            if listen.client_ca:
                _trust(self._certificate.context, listen.client_ca)

    async def run(self) -> None:
        """For ever."""
        await beside(self._run)

    async def _run(self) -> None:
        runner, certified = None, False
        while runner is None:
            try:
                if self._certificate is not None and not certified:  # once, however long the port is in use
                    await self._certificate.refresh()
                    certified = True
                runner = await self._serve()
            except UserError as error:
                if error.what != self._refused:
                    logger.warn("the metrics page is not served yet", what=error.what, why=error.why, **{"try": OTHER})
                self._refused = error.what
                await self._sleep(TRY_SECONDS)
        self.port = runner.addresses[0][1]
        scheme = "http" if self._certificate is None else "https"
        logger.info("metrics page", scheme=scheme, host=self._listen.host, port=self.port, tokens=bool(self._readers))
        try:
            if self._certificate is not None:
                await self._certificate.keep(self._sleep)
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()

    async def _serve(self) -> web.AppRunner:
        app = web.Application()
        app.add_routes([web.get("/metrics", self._answer)])
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        tls = self._certificate.context if self._certificate is not None else None
        await http.listen(
            runner, self._listen.host, [self._listen.port], tls=tls, other_port=OTHER, most=CONNECTIONS, backlog=BACKLOG
        )
        return runner

    async def _answer(self, request: web.Request) -> web.Response:
        if self._readers is not None:
            status, why = await self._readers.verdict(request.headers.get("Authorization", ""), request.remote or "")
            if status != 200:
                headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
                return web.Response(status=status, text=f"{why}\n", headers=headers)
        return http.scraped(self._page)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _trust(context: ssl.SSLContext, client_ca: str) -> None:
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(client_ca)
    except OSError as error:
        way = "check --metrics-client-ca: certificates as PEM"
        raise UserError(f"the TLS files cannot be used: {client_ca}", str(error), way) from error
