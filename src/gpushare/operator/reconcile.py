"""One pass over everything: from what is seen to what is written, and to what the policy says about itself.

It may be cut off at any moment. It keeps nothing that the cluster does not have, so the next pass, of this replica or
of another one, comes to the same end.
"""

import datetime
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from gpushare.core.facts import names
from gpushare.kube import client, requests, resources
from gpushare.kube.errors import ApiError, KubeError
from gpushare.kube.events import Recorder
from gpushare.obs import log
from gpushare.operator import active, notices
from gpushare.operator.applying import finalizing
from gpushare.operator.applying.applier import Applier
from gpushare.operator.applying.ending import Ending
from gpushare.operator.applying.labeller import Labeller
from gpushare.operator.applying.strangers import LOOK_SECONDS, Strangers
from gpushare.operator.applying.writer import Writer, sentence
from gpushare.operator.desired.component import Cluster, Component, Manifests
from gpushare.operator.desired.policy import Spec
from gpushare.operator.metrics import FAILED, NO_POLICY, NOT_READY, READY, Figures
from gpushare.operator.seeing.models import Policy
from gpushare.operator.seeing.watches import Seen
from gpushare.operator.status import whole as statuses
from gpushare.operator.status.components import Line, Scene

Object = dict[str, Any]
Unseen = Sequence[KubeError | None]

UNREADABLE: Final = "the policy cannot be read: {why}"

logger = log.get(__name__)


class Config(NamedTuple):
    """`build`: what a policy wants, as objects. `privileged`: the namespace gets labels that let its parts run."""

    namespace: str
    image: str
    pull_secrets: tuple[str, ...]
    build: Callable[[Spec, Cluster, Manifests], Sequence[Component]]
    manifests: Manifests
    privileged: bool = False


class Reconciler:
    """`leads`: whether it still may write."""

    def __init__(
        self,
        config: Config,
        api: client.Api,
        seen: Seen,
        recorder: Recorder,
        figures: Figures,
        leads: Callable[[], bool],
    ) -> None:
        self._config, self._seen, self._recorder, self._figures = config, seen, recorder, figures
        self._writer = Writer(api, leads)
        self._strangers = Strangers(api)
        self._applier = Applier(self._writer, seen.owned, self._strangers)
        self._labeller = Labeller(self._writer, seen.nodes)
        self._ending = Ending(seen.pods, _now)
        self._finalizer = finalizing.Finalizer(
            api, self._writer, self._applier, self._labeller, seen, config.namespace, self._ending
        )
        self.again: float | None = None  # in so many seconds a pass is due, though nothing may change until then

    async def run(self, cluster: Cluster, unseen: Unseen) -> bool:
        """False: something is left to do, and no watch will tell when. `unseen`: one for each kind of object that has
        not been listed yet: why, or None if that only takes a moment."""
        figures, written = self._figures, self._writer.writes
        figures.passes += 1
        self.again = None
        try:
            done = await self._each(cluster, unseen)
        except KubeError as error:  # of writing a status
            logger.warn("a pass failed, trying again", why=str(error))
            done = False
        figures.writes += self._writer.writes - written
        if done:
            figures.last_success = time.time()
        else:
            figures.failed += 1
        return done

    async def _each(self, cluster: Cluster, unseen: Unseen) -> bool:
        policies = active.in_order(self._seen.policies.found.values())
        if not policies:
            self._figures.result, self._figures.status = NO_POLICY, {}
            return True
        first, *others = policies
        done = [await self._ignored(policy, first, cluster) for policy in others]
        if unseen:
            return await self._blind(first, cluster, unseen)
        if first.metadata.deletion_timestamp:
            return all([await self._delete(first, cluster), *done])
        return all([await self._reconcile(first, cluster), *done])

    async def _ignored(self, policy: Policy, by: Policy, cluster: Cluster) -> bool:
        if not policy.metadata.deletion_timestamp:
            await self._say(policy, statuses.ignored(policy, cluster.namespace, by, _stamp()))
        elif names.CLEAN_UP in (policy.metadata.finalizers or ()):
            return not (await self._finalizer.clean_up(policy, cluster.kinds, alone=False)).failed
        return True

    async def _blind(self, policy: Policy, cluster: Cluster, unseen: Unseen) -> bool:
        """Before everything is seen nothing is written but why."""
        why = [sentence(error) for error in unseen if error is not None]
        if why:
            await self._fail(policy, cluster, why)
        return False

    async def _delete(self, policy: Policy, cluster: Cluster) -> bool:
        if names.CLEAN_UP not in (policy.metadata.finalizers or ()):
            return True  # somebody else's finalizer
        self._figures.result = NOT_READY
        left = await self._finalizer.clean_up(policy, cluster.kinds, alone=True)
        if left.texts:
            await self._say(policy, statuses.deleting(policy, cluster.namespace, left.texts, _stamp()), active=True)
            self.again = self._ending.later()
        return not left.failed

    async def _reconcile(self, policy: Policy, cluster: Cluster) -> bool:
        try:
            spec = msgspec.convert(policy.spec, Spec)
        except msgspec.ValidationError as error:
            await self._fail(policy, cluster, [UNREADABLE.format(why=error)])
            return True  # until somebody changes it
        if names.CLEAN_UP not in (policy.metadata.finalizers or ()):
            await finalizing.set_finalizers(self._writer, policy, [*(policy.metadata.finalizers or ()), names.CLEAN_UP])
        components = tuple(self._config.build(spec, cluster, self._config.manifests))
        failures = await self._applier.apply(components, policy)
        failures += await self._applier.prune(components, policy, self._ending)
        self.again = self._later()
        unlabelled = await self._labeller.label(spec)
        failed = [Line(one.component, "", one.text) for one in failures] + [Line("", "", one) for one in unlabelled]
        seen = self._seen
        there = {**self._strangers.as_good, **seen.owned.found}
        scene = Scene(components, there, list(seen.nodes.facts.values()), list(seen.pods.found.values()), failed)
        status = statuses.reconciled(policy, cluster.namespace, scene, _stamp())
        self._figures.result = FAILED if failed else READY if status["state"] == statuses.READY else NOT_READY
        await self._say(policy, status, active=True)
        return not unlabelled and not any(one.again for one in failures)

    def _later(self) -> float | None:
        waits = [self._ending.later(), self._applier.quarrels.later(), LOOK_SECONDS if self._strangers.met else None]
        return min((wait for wait in waits if wait is not None), default=None)

    async def _fail(self, policy: Policy, cluster: Cluster, why: Sequence[str]) -> None:
        self._figures.result = FAILED
        await self._say(policy, statuses.failed(policy, cluster.namespace, why, _stamp()), active=True)

    async def _say(self, policy: Policy, status: Object, *, active: bool = False) -> None:
        """Writes the status if it differs."""
        if active:
            self._figures.status = status
        current = self._seen.policies.found.get(policy.name)
        if current is None or current.uid != policy.uid or current.status == status:
            return
        request = requests.patch_status(resources.CLUSTER_POLICIES, "", policy.name, status)
        try:
            written = await self._writer.fetch(request, Policy)
        except ApiError as error:
            if error.status == 404:
                return
            raise
        notices.record(self._recorder, policy, status)
        self._seen.policies.put(written)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _stamp() -> str:
    return _now().strftime("%Y-%m-%dT%H:%M:%SZ")
