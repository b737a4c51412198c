"""A cluster of stand-ins: API server and scheduler of `gpushare.devcluster` with the real extender, in this process."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.devcluster.scheduler import Scheduler
from gpushare.extender.server import PREFIX
from gpushare.kube.auth.login import Access
from tests.e2e.harness import objects, versions
from tests.support import api_client, extender_in_process
from tests.support.objects import Object
from tests.support.pod_watch import PodWatch


class Embedded:
    def __init__(self, server: ApiServer, api: api_client.Api, shown: PodWatch) -> None:
        self.server, self.api, self.watch = server, api, shown
        self.nodes: dict[str, str] = {}
        self.extender_port = 0
        self.version = versions.NEWEST.number
        self.filter_verb = "choose"

    async def create_node(self, words: Object) -> str:
        name = f"node-{len(self.nodes)}"
        await self.api.create("/api/v1/nodes", objects.node(name, **words))
        return name

    async def create_pod(self, made: Object, priority: int) -> None:
        made["spec"].pop("priorityClassName", None)  # there are no classes here
        made["spec"]["priority"] = priority
        await self.api.create(self.api.pods, made)

    @contextlib.asynccontextmanager
    async def scheduling(self, url: str = "") -> AsyncIterator[None]:
        """`url`: of a proxy before the API server, for the scheduler."""
        async with extender_in_process.running(self.server) as extender, self.scheduler(extender.port, url):
            self.extender_port = extender.port
            yield

    def scheduler(self, extender_port: int | None, url: str = "") -> Scheduler:
        return Scheduler(
            Access(url or self.server.url),
            extender_url=None if extender_port is None else f"http://127.0.0.1:{extender_port}{PREFIX}",
            filter_verb=self.filter_verb,
            first_backoff=0.05,
            longest_backoff=0.4,
        )


@contextlib.asynccontextmanager
async def running() -> AsyncIterator[Embedded]:
    async with ApiServer() as server, api_client.connect(server.url) as api:
        shown = PodWatch(api)
        watching = asyncio.create_task(shown.run())
        try:
            yield Embedded(server, api, shown)
            assert not watching.done(), watching.exception()
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
