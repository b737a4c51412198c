"""A whole extender in the process of the test, with watches of the embedded API server, an HTTP port and its ledger."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from gpushare.core.ledger.holding import State
from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.extender import app, server
from gpushare.kube import client
from gpushare.kube.auth import login
from gpushare.kube.scraping.server import Listening
from tests.support import extender_process, wait

Held = dict[str, tuple[State, str, object]]


class ExtenderInProcess(extender_process.Client):
    def __init__(self, extender: app.Extender, api_server: ApiServer, port: int) -> None:
        super().__init__(port)
        self.extender, self.server, self.ledger = extender, api_server, extender.ledger

    def promised(self) -> Held:
        """What is bound or about to be, by uid. Assumptions come and go with questions; these do not."""
        return {
            holding.pod.uid: (holding.state, holding.node, holding.charges)
            for holding in self.ledger.holdings()
            if holding.state is not State.ASSUMED
        }


@contextlib.asynccontextmanager
async def running(
    api_server: ApiServer,
    url: str = "",
    *,
    ready: bool = True,
    metrics: Listening | None = None,
    policy: str = "binpack",
    policy_namespace: str = "",
) -> AsyncIterator[ExtenderInProcess]:
    """`url`: of a proxy to ask instead of the API server itself. `ready`: not before the cluster was read. `metrics`:
    where Prometheus asks, too. `policy_namespace`: where policy ConfigMaps are."""
    access = login.Access(url or api_server.url, context="test", source="~/.kube/config")
    config = app.Config(
        "127.0.0.1", [0], policy, None, None, metrics=metrics, policy_namespace=policy_namespace
    )  # fmt: skip
    async with client.connect(access, kept=app.KEPT) as api:
        extender = app.Extender(config, api)
        handlers = server.Handlers(
            extender.verbs, extender.binder, extender.metrics, extender.not_ready, extender.demand
        )
        runner = await server.serve(handlers, config.host, config.ports, None)
        tasks, asker = extender.start(), ExtenderInProcess(extender, api_server, runner.addresses[0][1])
        try:
            if ready:
                await wait.eventually(lambda: not extender.not_ready(), "the first sync")
            yield asker
            assert not any(task.done() for task in tasks), [task for task in tasks if task.done()]
        finally:
            await asker.close()
            await asyncio.gather(extender.binder.finish(0.1), runner.cleanup())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
