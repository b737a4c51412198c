"""`gpushare dashboard`: its parts, what runs, and how it ends. Read top to bottom.

For a person at this machine it ends at once if the cluster cannot be read, as the other commands do. In a cluster it
waits for that, and `/readyz` says so.
"""

import asyncio
import os
import re
import secrets
import signal
import time
import webbrowser
from collections.abc import AsyncIterator, Callable
from typing import Final, NamedTuple

import aiohttp
from aiohttp import web

from gpushare.core.facts import objects
from gpushare.dashboard.live.cluster import Live
from gpushare.dashboard.live.history import History
from gpushare.dashboard.live.past import Past
from gpushare.dashboard.live.prometheus import Prometheus
from gpushare.dashboard.live.ticks import Ticks
from gpushare.dashboard.pages import Pages
from gpushare.dashboard.reading import Reading
from gpushare.dashboard.server import guard, serving
from gpushare.dashboard.server.access.local import Local
from gpushare.dashboard.server.access.reviewed import Reviewed
from gpushare.dashboard.server.routes import Access, Routes
from gpushare.dashboard.server.sessions import Sessions
from gpushare.dashboard.server.static import Static
from gpushare.dashboard.server.streams import Streams
from gpushare.dashboard.server.trials import Trials
from gpushare.kube import client, failures, resources
from gpushare.kube.auth import login
from gpushare.kube.errors import KubeError
from gpushare.kube.scraping.certificate import Certificate, Files
from gpushare.obs import log
from gpushare.obs.signals import ending, until_signalled

NAME: Final = "gpushare-dashboard"  # its Service
OTHER: Final = "--tls-cert FILE --tls-key FILE"
FLAGS: Final = "--tls-cert and --tls-key"
LINK: Final = "Dashboard: {url}"
EPOCH_BYTES: Final = 3
STARTING: Final = "starting"
LOOK_SECONDS: Final = 0.2  # between two looks at whether the cluster is read

logger = log.get(__name__)


class Config(NamedTuple):
    """`port` 0: any free one. `hosts`: further names it may be asked by. `prometheus`: empty: none."""

    host: str = "127.0.0.1"
    port: int = 0
    in_cluster: bool = False
    behind_proxy: bool = False
    hosts: tuple[str, ...] = ()
    tls_cert: str = ""
    tls_key: str = ""
    prometheus: str = ""
    browser: bool = False


class Dashboard:
    """All parts, made but not running."""

    def __init__(self, config: Config, api: client.Api, http: aiohttp.ClientSession) -> None:
        self.api, self.live, self.history, self.trials = api, Live(), History(), Trials()
        self.ticks = Ticks(self.live, self.history, epoch=secrets.token_hex(EPOCH_BYTES))
        prometheus = Prometheus(config.prometheus, http) if config.prometheus else None
        past = Past(self.history, prometheus, time.time)
        self.pages = Pages(self.live, self.history, past, Reading(api), self.trials)

    def not_ready(self) -> str:
        """Why nothing can be shown yet; empty if it can. Once it could, it can: the page says how old everything is."""
        return "" if self.ticks.seq else self.live.ages().failure or STARTING

    async def run(self) -> None:
        """For ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.live.run(self.api))
            tasks.create_task(self._tick())

    async def _tick(self) -> None:
        while not (ages := self.live.ages()).synced:  # of half a cluster there is nothing to say
            logger.debug("not read yet", why=ages.failure)
            await asyncio.sleep(LOOK_SECONDS)
        await self.ticks.run()


async def run(config: Config, access: login.Access, tell: Callable[[str], None]) -> signal.Signals:
    """Runs until a signal comes, and returns it. `tell`: prints a line for the person who started it."""
    signals = ending()
    async with client.connect(access) as api, aiohttp.ClientSession() as http:
        dashboard = Dashboard(config, api, http)
        if config.in_cluster:
            return await until_signalled(_in_cluster(config, dashboard), signals)
        return await until_signalled(_local(config, dashboard, tell), signals)


async def _local(config: Config, dashboard: Dashboard, tell: Callable[[str], None]) -> None:
    await _check_rights(dashboard.api)
    sessions, access, host = Sessions(), dashboard.api.access, _in_url(config.host)
    opening = config.browser

    def show(url: str) -> None:
        nonlocal opening
        tell(LINK.format(url=url))
        if opening:
            opening = False
            asyncio.get_running_loop().run_in_executor(None, webbrowser.open, url)

    def made(port: int) -> tuple[Access, guard.Hosts]:
        user = access.user or access.context
        return Local(port, user, show, sessions, host=host), guard.local(port, host)

    await _serve(config, dashboard, made, cluster=access.context, certificate=None)


async def _in_cluster(config: Config, dashboard: Dashboard) -> None:
    namespace, address = os.environ.get("POD_NAMESPACE", "kube-system"), os.environ.get("POD_IP", "")
    service = [NAME, f"{NAME}.{namespace}", f"{NAME}.{namespace}.svc", f"{NAME}.{namespace}.svc.cluster.local"]
    own = [_in_url(address)] if address else []
    certificate = None
    if not config.behind_proxy:
        files = Files(config.tls_cert, config.tls_key, FLAGS)
        certificate = Certificate(files, [*service, "localhost", address, *map(_name, config.hosts)], OTHER)
        await certificate.refresh()

    def made(port: int) -> tuple[Access, guard.Hosts]:
        hosts = guard.in_cluster(port, [*config.hosts, *service, *own], behind_proxy=config.behind_proxy)
        return Reviewed(dashboard.api, Sessions(), behind_proxy=config.behind_proxy), hosts

    await _serve(config, dashboard, made, cluster="", certificate=certificate)


async def _serve(
    config: Config,
    dashboard: Dashboard,
    made: Callable[[int], tuple[Access, guard.Hosts]],
    *,
    cluster: str,
    certificate: Certificate | None,
) -> None:
    """Until it is cancelled. `made`: who asks, and by which names, once the port is known."""
    routes: asyncio.Future[Routes] = asyncio.get_running_loop().create_future()
    filenos: set[int] = set()

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        return await (await routes).handle(request)

    tls = certificate.context if certificate is not None else None
    runner = await serving.listen(handle, config.host, config.port, tls=tls, spared=filenos)
    port: int = runner.addresses[0][1]
    access, hosts = made(port)
    streams = Streams(dashboard.ticks, access.ended, filenos)
    routes.set_result(Routes(
        hosts, access, dashboard.ticks, streams, dashboard.pages.table(), Static(),
        dashboard.live.numbers.namespaces,
        cluster=cluster, not_ready=dashboard.not_ready, probed=config.in_cluster,
    ))  # fmt: skip
    logger.info("listening", host=config.host, port=port, tls=tls is not None, mode=access.mode)
    if isinstance(access, Local):
        access.invite()
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(dashboard.run())
            tasks.create_task(streams.run())
            if certificate is not None:
                tasks.create_task(certificate.keep())
    finally:
        await streams.close()
        await runner.cleanup()
        dashboard.trials.close()


async def _check_rights(api: client.Api) -> None:
    """Raises what a person needs to know if the cluster cannot be read."""
    try:
        await _first(api.list_pages(resources.NODES, objects.Node, limit=1))
        await _first(api.list_pages(resources.PODS, objects.Pod, limit=1))
    except KubeError as error:
        raise failures.explain(error, api.access) from error


async def _first(pages: AsyncIterator[object]) -> None:
    async for _ in pages:
        return


def _in_url(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _name(host: str) -> str:
    """Without its port."""
    return re.sub(r":[0-9]+$", "", host).strip("[]")
