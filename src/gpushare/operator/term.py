"""What the leader does: it watches, and after each change that matters it makes one pass over everything."""

import asyncio
from collections.abc import Callable
from typing import Final

from gpushare.kube import client
from gpushare.kube.errors import KubeError
from gpushare.kube.events import Recorder
from gpushare.kube.loop import Backoff, Loop
from gpushare.obs import log
from gpushare.operator.applying import pod_security
from gpushare.operator.desired.component import Cluster
from gpushare.operator.metrics import Figures
from gpushare.operator.reconcile import Config, Reconciler
from gpushare.operator.seeing import discovery, watches

DISCOVER_SECONDS: Final = 300.0  # between two looks at which kinds the API server serves
RETRY: Final = (0.1, 2.0)  # seconds between two passes while something fails: hand edits are undone within 5
PAUSE: Final = 0.2  # seconds after a pass: changes that come together are one

logger = log.get(__name__)


class Term:
    """One time of leading. `leads`: whether it still may write."""

    def __init__(
        self, config: Config, api: client.Api, recorder: Recorder, figures: Figures, leads: Callable[[], bool]
    ) -> None:
        self._config, self._api = config, api
        self._loop = Loop(self._pass, RETRY)
        seen = watches.seen(self._loop.wake)
        self._watches = watches.Watches(api, config.namespace, seen)
        self._reconciler = Reconciler(config, api, seen, recorder, figures, leads)
        self._cluster: Cluster | None = None  # not known yet
        self._again: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watches.run())
            tasks.create_task(self._label_namespace())
            tasks.create_task(self._discover())
            tasks.create_task(self._loop.run())

    async def _label_namespace(self) -> None:
        """Once: what people change there afterwards is theirs."""
        config, retry = self._config, Backoff()
        while True:
            try:
                return await pod_security.keep(self._api, config.namespace, allowed=config.privileged)
            except KubeError as error:
                logger.warn("cannot label the namespace for pod security, trying again", why=str(error))
                await asyncio.sleep(retry.delay())

    async def _discover(self) -> None:
        retry = Backoff()
        while True:
            try:
                await self._look()
            except KubeError as error:
                logger.warn("cannot ask what the API server serves, trying again", why=str(error))
                await asyncio.sleep(retry.delay())
            else:
                retry.reset()
                await asyncio.sleep(DISCOVER_SECONDS)

    async def _look(self) -> None:
        version, git_version = await discovery.version(self._api)
        config, kinds = self._config, await discovery.kinds(self._api)
        now = Cluster(config.namespace, version, git_version, config.image, config.pull_secrets, kinds)
        if now != self._cluster:
            logger.info("the cluster", version=git_version, kinds=len(kinds))
            self._cluster = now
            self._watches.serve(kinds)
            self._loop.wake()

    async def _pass(self) -> bool:
        """False: something is left to do, and no watch will tell when."""
        cluster = self._cluster
        if cluster is None or not self._watches.policies.synced:
            return False
        unseen = self._watches.waiting(cluster.kinds)
        if unseen and not any(unseen):
            return False  # lists are on their way
        done = await self._reconciler.run(cluster, unseen)
        self._look_again(self._reconciler.again)
        if done:
            await asyncio.sleep(PAUSE)
        return done

    def _look_again(self, seconds: float | None) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if seconds is not None:
            self._again = asyncio.get_running_loop().call_later(seconds, self._loop.wake)
