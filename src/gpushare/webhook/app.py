"""`gpushare webhook`: its parts, what runs, and how it ends. Read top to bottom.

It listens as soon as it has a certificate, and only then tells the API server to ask it. When it is told to end, it
says so on `/readyz` and goes on answering until nobody sends requests here any more.
"""

import asyncio
import contextlib
import datetime
import email.utils
import functools
import signal
from typing import NamedTuple, Protocol

from gpushare.core.facts import objects
from gpushare.kube import client, failures, resources
from gpushare.kube.auth.login import Access
from gpushare.kube.errors import KubeError
from gpushare.kube.loop import Backoff
from gpushare.kube.reflector import Reflector
from gpushare.obs import errors, http, log
from gpushare.obs.signals import ending
from gpushare.obs.tls import Shown
from gpushare.webhook import reviews, server
from gpushare.webhook.classes import Classes
from gpushare.webhook.nodes import Nodes
from gpushare.webhook.registration import Registration
from gpushare.webhook.rules import Choices
from gpushare.webhook.tls import Files

REFRESH_SECONDS = 10.0  # between two looks at certificate and registration
START_SECONDS = 30.0  # for the first certificate, if a person's help may be needed
PAGE = 50  # nodes that are read at once: nobody waits for them, and memory is short here
DRAIN_SECONDS = 15.0  # until every API server and every node knows that this replica ends
STOPPING = "it is being stopped"

logger = log.get(__name__)


class Config(NamedTuple):
    host: str
    port: int
    choices: Choices
    on: reviews.On
    certificate: str | None = None  # files, else the Secret
    key: str | None = None
    bundle: str | None = None


class Source(Protocol):
    """Where the certificate comes from."""

    async def refresh(self) -> bytes | None:
        """Loads it, if it is new. Returns the authorities that API servers shall trust; None: not our part."""


class Webhook:
    """All parts, made but not running."""

    def __init__(self, config: Config, api: client.Api) -> None:
        self.api = api
        self.shown, self.nodes, self.classes = Shown(), Nodes(), Classes()
        self.listening = self.stopping = False
        self.source = _source(config, api, self.shown)
        self.registration = Registration(api, config.choices)
        self.watch = Reflector(
            api, resources.NODES, objects.Node, self.nodes, key=lambda node: node.metadata.name, page=PAGE
        )  # fmt: skip
        self.classes_watch = Reflector(
            api, resources.PRIORITY_CLASSES, objects.PriorityClass, self.classes,
            key=lambda found: found.metadata.name, optional=True,
        )  # fmt: skip
        answers = server.answers(config.choices, functools.partial(self._validated, config.on), self._prioritized)
        self.handlers = server.Handlers(answers, lambda: STOPPING if self.stopping else "")

    def _validated(self, on: reviews.On, body: bytes) -> bytes:
        return reviews.validated(body, on, self.nodes.ledger if self.watch.synced else None)

    def _prioritized(self, body: bytes) -> bytes:
        return reviews.prioritized(body, self.classes.found)

    async def serve(self, config: Config) -> None:
        """Until it is cancelled; requests that are being answered then are answered."""
        await self.prepare()
        runner = await http.serve(self.handlers.application(), config.host, [config.port], tls=self.shown.context)
        self.listening = True
        logger.info("listening", host=config.host, port=config.port)
        try:
            await self.keep_current()
        finally:
            await runner.cleanup()

    async def prepare(self) -> None:
        """Waits for the first certificate. If a person's help is needed to get it, ends with the reason."""
        retry, loop = Backoff(), asyncio.get_running_loop()
        begun = loop.time()
        while True:
            try:
                await self.source.refresh()
            except KubeError as error:
                late = loop.time() - begun > START_SECONDS
                if late and failures.needs_help(error, waits_for_connection=True):
                    raise failures.explain(error, self.api.access) from error
                logger.warn("no certificate yet, trying again", why=str(error))
                await asyncio.sleep(retry.delay())
            else:
                return

    async def keep_current(self) -> None:
        """For ever: the certificate that is shown, and what the API server knows of it and of us."""
        while True:
            try:
                await self.registration.refresh(await self.source.refresh())
            except (KubeError, errors.UserError, OSError) as error:
                logger.warn("certificate or registration not looked at, trying again", why=str(error))
            await asyncio.sleep(REFRESH_SECONDS)


def _source(config: Config, api: client.Api, shown: Shown) -> Source:
    if config.certificate and config.key:
        return Files(shown, config.certificate, config.key, config.bundle)
    from gpushare.webhook.secret import Secret  # makes certificates, and brings a large library for it

    return Secret(api, shown, lambda: now(api), config.choices.namespace)


def now(api: client.Api) -> datetime.datetime:
    """The API server's time; ours before its first answer, or if it does not tell."""
    with contextlib.suppress(ValueError, TypeError):
        return email.utils.parsedate_to_datetime(api.date).astimezone(datetime.UTC)
    return datetime.datetime.now(datetime.UTC)


async def run(config: Config, access: Access) -> signal.Signals:
    """Runs until a signal comes, and returns it. A second one ends it at once."""
    signals = ending()
    async with client.connect(access) as api:
        webhook = Webhook(config, api)
        stop, hurry = asyncio.create_task(signals.get()), None
        tasks = [
            asyncio.create_task(part)
            for part in (webhook.serve(config), webhook.watch.run(), webhook.classes_watch.run())
        ]
        try:
            await asyncio.wait([stop, *tasks], return_when=asyncio.FIRST_COMPLETED)
            if stop.done() and webhook.listening:
                webhook.stopping = True
                logger.info("stopping", answers_for=DRAIN_SECONDS)
                hurry = asyncio.create_task(signals.get())
                await asyncio.wait([hurry, *tasks], timeout=DRAIN_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            running = [task for task in (stop, hurry, *tasks) if task is not None]
            for task in running:
                task.cancel()
            ended = await asyncio.gather(*running, return_exceptions=True)
        for end in ended:
            if isinstance(end, Exception):
                raise end
        return stop.result()
