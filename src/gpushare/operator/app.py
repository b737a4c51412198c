"""`gpushare operator`: its parts, what runs, and how it ends. Read top to bottom.

Of several replicas one leads and works; the others only look at the Lease. When it is told to end it stops working,
gives the Lease back, and the next one starts at once.
"""

import asyncio
import signal
from typing import Any, Final, NamedTuple

from gpushare.core.facts import names
from gpushare.kube import client, requests, resources
from gpushare.kube.auth.login import Access
from gpushare.kube.errors import KubeError
from gpushare.kube.events import Recorder
from gpushare.kube.lease import Election
from gpushare.obs import http, log, metrics
from gpushare.obs.signals import ending
from gpushare.operator.metrics import Figures, Metrics
from gpushare.operator.reconcile import Config
from gpushare.operator.seeing.models import Live
from gpushare.operator.term import Term

EVENTS_SECONDS: Final = 1.0  # for events that are not sent yet when the process ends
AGENT: Final = "gpushare-operator"

logger = log.get(__name__)


class Settings(NamedTuple):
    """`identity`: the name of this replica."""

    identity: str
    work: Config
    host: str = "0.0.0.0"
    port: int = 12347


class Operator:
    """All parts, made but not running."""

    def __init__(self, settings: Settings, api: client.Api, owners: list[dict[str, Any]]) -> None:
        self.recorder, self.figures = Recorder(api), Figures()
        self.election = Election(
            api, settings.work.namespace, names.OPERATOR_MANAGER, settings.identity, owners=owners
        )  # fmt: skip
        self.metrics = Metrics(self.figures, self.recorder, lambda: self.election.leads)
        self._settings, self._api = settings, api

    def not_ready(self) -> str:
        return f"the lease cannot be read: {self.election.failure}" if self.election.failure is not None else ""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.election.acquire()
            term = Term(self._settings.work, self._api, self.recorder, self.figures, lambda: self.election.leads)
            work = asyncio.create_task(term.run())
            keep = asyncio.create_task(self.election.keep())
            try:
                await asyncio.wait([work, keep], return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (work, keep):
                    task.cancel()
                ended = await asyncio.gather(work, keep, return_exceptions=True)
            for end in ended:
                if isinstance(end, Exception):
                    raise end


async def run(settings: Settings, access: Access) -> signal.Signals:
    """Runs until a signal comes, and returns it."""
    signals = ending()
    async with client.connect(access, agent=AGENT) as api:
        operator = Operator(settings, api, await owners(api, settings.work.namespace))
        registry = operator.metrics.registry
        listening = await http.serve_probes(
            settings.host, settings.port, lambda: "", operator.not_ready, lambda: metrics.exposition(registry)
        )
        logger.info("listening", port=listening.addresses[0][1], namespace=settings.work.namespace)
        events = asyncio.create_task(operator.recorder.run())
        work, stop = asyncio.create_task(operator.run()), asyncio.create_task(signals.get())
        try:
            await asyncio.wait([work, stop], return_when=asyncio.FIRST_COMPLETED)
            logger.info("stopping")
            work.cancel()
            ended = await asyncio.gather(work, return_exceptions=True)
            await operator.election.give_back()
            await operator.recorder.drain(EVENTS_SECONDS)
        finally:
            for task in (events, stop):
                task.cancel()
            await asyncio.gather(events, stop, return_exceptions=True)
            await listening.cleanup()
        if isinstance(ended[0], Exception):
            raise ended[0]
        return stop.result()


async def owners(api: client.Api, namespace: str) -> list[dict[str, Any]]:
    """The Lease goes with the Deployment that runs this. Run by hand there is none, and the Lease stays."""
    name = names.OPERATOR_MANAGER
    try:
        found = await api.find(requests.read(resources.DEPLOYMENTS, namespace, name), Live)
    except KubeError as error:
        logger.warn("the lease will stay: its Deployment cannot be read", why=str(error))
        return []
    if found is None:
        return []
    return [{"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": found.metadata.uid}]
