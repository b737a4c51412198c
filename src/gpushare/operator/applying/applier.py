"""Makes objects as they are wanted, and deletes those of a policy that are not wanted any more.

An object that cannot be written does not stop the others: its failure is kept by component, for the status.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from gpushare.core.facts import names
from gpushare.kube import requests
from gpushare.kube.errors import KubeError
from gpushare.obs import log
from gpushare.operator.applying import comparing, marking
from gpushare.operator.applying.ending import Ending
from gpushare.operator.applying.quarrels import Quarrels
from gpushare.operator.applying.strangers import AS_GOOD, Strangers
from gpushare.operator.applying.writer import Writer, sentence
from gpushare.operator.desired.component import Component, Object
from gpushare.operator.seeing.keys import WORKLOADS, Key, key_of
from gpushare.operator.seeing.kinds import BY_NAME, GOES
from gpushare.operator.seeing.models import Live, Policy
from gpushare.operator.seeing.sight import Owned

LAST_PROGRAM: Final = max(GOES[kind] for kind in WORKLOADS)

logger = log.get(__name__)


class Failure(NamedTuple):
    """`again`: to try again at once is of use."""

    component: str
    text: str
    again: bool = True


class Applier:
    def __init__(self, writer: Writer, owned: Owned, strangers: Strangers) -> None:
        self._writer, self._owned, self._strangers = writer, owned, strangers
        self.quarrels = Quarrels()
        # The API server may write what is wanted in other words, such as 1 for 1000m. What it made of an apply is then
        # as good as wanted: what was wanted, and how the object looked.
        self._settled: dict[Key, tuple[str, str]] = {}

    async def apply(self, components: Sequence[Component], policy: Policy) -> list[Failure]:
        """Accounts and rights before the programs that need them, and what decides about others' pods last."""
        wanted = [
            (marking.marked(one, component.name, policy), component.name)
            for component in components
            for one in component.objects
        ]
        failures = []
        self._strangers.begin(frozenset(key_of(body) for body, _ in wanted))
        for body, component in sorted(wanted, key=lambda each: -GOES[each[0]["kind"]]):
            key = key_of(body)
            try:
                stranger = None if key in self._owned.found else await self._strangers.find(key)
                if stranger is None:
                    self._strangers.gone(key)
                    why = await self._make(key, body)
                else:
                    why = "" if key.kind in AS_GOOD else stranger.text
                failures += [Failure(component, why, again=False)] if why else []
            except KubeError as error:
                logger.warn("not applied, trying again", kind=key.kind, name=key.name, why=str(error))
                failures.append(Failure(component, f"{key} cannot be applied: {sentence(error)}"))
        return failures

    async def prune(self, components: Sequence[Component], policy: Policy, ending: Ending) -> list[Failure]:
        """Only what has our label (nothing else is watched) and that policy as owner, or none. Programs go first, and
        the rest of a component when their pods have ended. A component that is switched on and cannot be served as it
        is asked for now keeps running as it was."""
        wanted = {key_of(one) for component in components for one in component.objects}
        kept = {component.name for component in components if component.unserved}
        unwanted: dict[str, list[tuple[Key, Live]]] = {}
        for key, live in goes(self._owned, policy):
            component = (live.metadata.labels or {}).get(names.PART_OF, "")
            if key not in wanted and component not in kept:
                unwanted.setdefault(component, []).append((key, live))
        failures = []
        for component, found in unwanted.items():
            programs = [one for one in found if is_program(one[0])]
            stay = [key.name for key in wanted if key.kind in WORKLOADS]
            waits = bool(programs) or ending.of(component, stay)
            failures += [
                Failure(component, f"{key} cannot be deleted: {why}")
                for key, why in [await self._try_delete(*one) for one in (programs if waits else found)]
                if why
            ]
        return failures

    async def _try_delete(self, key: Key, live: Live) -> tuple[Key, str]:
        """Why not."""
        try:
            await self.delete(key, live)
        except KubeError as error:
            return key, sentence(error)
        return key, ""

    async def delete(self, key: Key, live: Live) -> None:
        if live.metadata.deletion_timestamp:
            return
        logger.info("deleting", kind=key.kind, name=key.name)
        resource = BY_NAME[key.kind].resource
        await self._writer.delete(requests.delete(resource, key.namespace, key.name, uid=live.metadata.uid))

    async def _make(self, key: Key, body: Object) -> str:
        """Why it does not stay as it is wanted; empty: nothing says so."""
        digest = body["metadata"]["annotations"][names.WANTED]
        live = self._owned.found.get(key)
        if live is not None and (live.metadata.deletion_timestamp or self._is_done(key, live, body, digest)):
            return ""  # one that is being deleted is made again when it is gone
        if live is not None and (live.metadata.annotations or {}).get(names.WANTED) == digest:
            if over := self.quarrels.over(key):
                return over
            self.quarrels.put_back(key)
        resource = BY_NAME[key.kind].resource
        request = requests.apply(
            resource, key.namespace, key.name, body, manager=names.OPERATOR_MANAGER, force=True
        )  # fmt: skip
        gone = self._owned.gone
        made = await self._writer.fetch(request, Live)
        logger.info("applied", kind=key.kind, name=key.name)
        self._owned.put(key, made, gone)
        if not comparing.as_wanted(made, body):
            self._settled[key] = (digest, comparing.fingerprint(made))
        return self.quarrels.over(key)

    def _is_done(self, key: Key, live: Live, body: Object, digest: str) -> bool:
        if comparing.as_wanted(live, body):
            return True
        return key in self._settled and self._settled[key] == (digest, comparing.fingerprint(live))


def is_program(key: Key) -> bool:
    """Or what asks one."""
    return GOES[key.kind] <= LAST_PROGRAM


def goes(owned: Owned, policy: Policy) -> Iterable[tuple[Key, Live]]:
    """All objects of a policy, in the order in which they are deleted; and those of one that was deleted without its
    objects: nobody else would ever delete them."""
    mine = [(key, live) for key, live in owned.found.items() if live.metadata.controller == policy.uid or _orphan(live)]
    return sorted(mine, key=lambda each: (GOES[each[0].kind], each[0]))


def _orphan(live: Live) -> bool:
    return not live.metadata.controller and names.WANTED in (live.metadata.annotations or {})
