"""What the leader does: it watches, and after each change that matters it makes one pass over everything.

A pass reads only what was seen, writes what differs, and says in the policy's status how things are. It may be cut off
at any moment: the next one, of this replica or another, comes to the same end.
"""

import asyncio
import datetime
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from gpushare.core.facts import names
from gpushare.kube import client, requests, resources
from gpushare.kube.errors import ApiError, KubeError
from gpushare.kube.events import Recorder
from gpushare.kube.loop import Backoff, Loop
from gpushare.obs import log
from gpushare.operator import active, finalizing, notices, pod_security
from gpushare.operator.applying.applier import Applier
from gpushare.operator.applying.writer import Writer, sentence
from gpushare.operator.desired.component import Cluster, Component, Manifests
from gpushare.operator.desired.policy import Spec
from gpushare.operator.labelling import Labeller
from gpushare.operator.metrics import FAILED, NO_POLICY, NOT_READY, READY, Figures
from gpushare.operator.seeing import discovery, watches
from gpushare.operator.seeing.models import Policy
from gpushare.operator.status import whole as statuses
from gpushare.operator.status.components import Line, Scene

Object = dict[str, Any]

DISCOVER_SECONDS: Final = 300.0  # between two looks at which kinds the API server serves
PAUSE: Final = 0.2  # seconds after a pass: changes that come together are one

logger = log.get(__name__)


class Config(NamedTuple):
    """`build`: what a policy wants, as objects. `privileged`: the namespace gets labels that let its parts run."""

    namespace: str
    image: str
    pull_secrets: tuple[str, ...]
    build: Callable[[Spec, Cluster, Manifests], Sequence[Component]]
    manifests: Manifests
    privileged: bool = False


class Term:
    """One time of leading. `leads`: whether it still may write."""

    def __init__(
        self, config: Config, api: client.Api, recorder: Recorder, figures: Figures, leads: Callable[[], bool]
    ) -> None:
        self._config, self._api, self._recorder, self._figures = config, api, recorder, figures
        self._loop = Loop(self._pass)
        self.seen = watches.seen(self._loop.wake)
        self._watches = watches.Watches(api, config.namespace, self.seen)
        self._writer = Writer(api, leads)
        self._applier = Applier(self._writer, self.seen.owned)
        self._labeller = Labeller(self._writer, self.seen.nodes)
        self._finalizer = finalizing.Finalizer(
            api, self._writer, self._applier, self._labeller, self.seen, config.namespace, _now
        )
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
        while True:
            try:
                await self._look()
            except KubeError as error:
                logger.warn("cannot ask what the API server serves, trying again", why=str(error))
                await asyncio.sleep(self._loop.retry.delay())
            else:
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
        cluster, written = self._cluster, self._writer.writes
        if cluster is None or not self._watches.policies.synced:
            return False
        self._figures.passes += 1
        try:
            done = await self._each(cluster)
        except KubeError as error:  # of writing a status
            logger.warn("a pass failed, trying again", why=str(error))
            done = False
        self._figures.writes += self._writer.writes - written
        if done:
            self._figures.last_success = time.time()
            await asyncio.sleep(PAUSE)
        else:
            self._figures.failed += 1
        return done

    async def _each(self, cluster: Cluster) -> bool:
        policies = active.in_order(self.seen.policies.found.values())
        if not policies:
            self._figures.result, self._figures.status = NO_POLICY, {}
            return True
        first, *others = policies
        done = [await self._ignored(policy, first, cluster) for policy in others]
        return all([await self._first(first, cluster), *done])

    async def _ignored(self, policy: Policy, by: Policy, cluster: Cluster) -> bool:
        if not policy.metadata.deletion_timestamp:
            await self._say(policy, statuses.ignored(policy, cluster.namespace, by, _stamp()))
        elif names.CLEAN_UP in (policy.metadata.finalizers or ()):
            return not await self._finalizer.clean_up(policy, cluster.kinds, alone=False)
        return True

    async def _first(self, policy: Policy, cluster: Cluster) -> bool:
        unseen = self._watches.waiting(cluster.kinds)
        if unseen:
            why = [sentence(error) for error in unseen if error is not None]
            if why:
                self._figures.result = FAILED
                await self._say(policy, statuses.failed(policy, cluster.namespace, why, _stamp()), active=True)
            return False
        if policy.metadata.deletion_timestamp:
            return await self._delete(policy, cluster)
        return await self._reconcile(policy, cluster)

    async def _delete(self, policy: Policy, cluster: Cluster) -> bool:
        if names.CLEAN_UP not in (policy.metadata.finalizers or ()):
            return True  # somebody else's finalizer
        self._figures.result = NOT_READY
        waits = await self._finalizer.clean_up(policy, cluster.kinds, alone=True)
        if not waits:
            return True
        await self._say(policy, statuses.deleting(policy, cluster.namespace, waits, _stamp()), active=True)
        self._look_again(self._finalizer.later())
        return not any(text.startswith("deleting failed") for text in waits)

    async def _reconcile(self, policy: Policy, cluster: Cluster) -> bool:
        try:
            spec = msgspec.convert(policy.spec, Spec)
        except msgspec.ValidationError as error:
            why = f"the policy cannot be read: {error}"
            self._figures.result = FAILED
            await self._say(policy, statuses.failed(policy, cluster.namespace, [why], _stamp()), active=True)
            return True  # until somebody changes it
        if names.CLEAN_UP not in (policy.metadata.finalizers or ()):
            await finalizing.set_finalizers(self._writer, policy, [*(policy.metadata.finalizers or ()), names.CLEAN_UP])
        components = tuple(self._config.build(spec, cluster, self._config.manifests))
        failed = [Line(*(one.component, "", one.text)) for one in await self._applier.apply(components, policy)]
        failed += [Line(one.component, "", one.text) for one in await self._applier.prune(components, policy)]
        failed += [Line("", "", text) for text in await self._labeller.label(spec)]
        scene = Scene(
            components, self.seen.owned.found, list(self.seen.nodes.facts.values()),
            list(self.seen.pods.found.values()), failed,
        )  # fmt: skip
        status = statuses.reconciled(policy, cluster.namespace, scene, _stamp())
        self._figures.result = FAILED if failed else READY if status["state"] == statuses.READY else NOT_READY
        await self._say(policy, status, active=True)
        return not failed

    async def _say(self, policy: Policy, status: Object, *, active: bool = False) -> None:
        """Writes the status if it differs."""
        if active:
            self._figures.status = status
        current = self.seen.policies.found.get(policy.name)
        if current is None or current.uid != policy.uid or current.status == status:
            return
        try:
            written = await self._writer.fetch(
                requests.patch_status(resources.CLUSTER_POLICIES, "", policy.name, status), Policy
            )
        except ApiError as error:
            if error.status == 404:
                return
            raise
        notices.record(self._recorder, policy, status)
        self.seen.policies.found[policy.name] = written

    def _look_again(self, seconds: float | None) -> None:
        if self._again is not None:
            self._again.cancel()
        if seconds is not None:
            self._again = asyncio.get_running_loop().call_later(seconds, self._loop.wake)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _stamp() -> str:
    return _now().strftime("%Y-%m-%dT%H:%M:%SZ")
