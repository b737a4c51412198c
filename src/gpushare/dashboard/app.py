"""`gpushare dashboard`: its parts, what runs, and how it ends. Read top to bottom."""

import asyncio
import os
import signal
import webbrowser
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from aiohttp import web

from gpushare.core.facts import objects
from gpushare.dashboard.server import guard
from gpushare.dashboard.server.access.local import Local
from gpushare.dashboard.server.access.reviewed import Reviewed
from gpushare.dashboard.server.routes import Access, Page, Routes
from gpushare.dashboard.server.sessions import Sessions
from gpushare.dashboard.server.static import Static
from gpushare.dashboard.server.streams import Streams
from gpushare.kube import client, failures, resources
from gpushare.kube.auth import login
from gpushare.kube.errors import KubeError
from gpushare.kube.scraping.certificate import Certificate, Files
from gpushare.obs import http, log
from gpushare.obs.signals import ending, until_signalled

NAME: Final = "gpushare-dashboard"  # its Service
CONNECTIONS: Final = 800  # open at a time; streams are at most 500 of them, and a shell allows 1024 files
BACKLOG: Final = 64
TLS_BACKLOG: Final = 8  # each handshake costs a millisecond, in which nothing is sent to others
OTHER: Final = "--port N"
FLAGS: Final = "--tls-cert and --tls-key"
LINK: Final = "Dashboard: {url}"

logger = log.get(__name__)

Print = Callable[[str], None]


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
