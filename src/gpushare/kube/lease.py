"""Leader election by a Lease: of several replicas one works, as with client-go and with its three times.

A holder writes its name and the time again and again. A candidate takes a Lease that has not changed for as long as it
is valid, by the candidate's own clock: clocks of machines are never compared. Each write names the resource version it
has seen, so of two candidates one loses. A holder that cannot renew stops before others may take the Lease, and one
that ends in order gives it back, so that the next one starts at once.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from gpushare.core.facts import objects
from gpushare.kube import client, requests, resources
from gpushare.kube.errors import ApiError, KubeError, Unreachable
from gpushare.obs import log

DURATION: Final = 15.0  # seconds; a Lease that is older is free
DEADLINE: Final = 10.0  # seconds without a renewal, after which a holder stops
RETRY: Final = 2.0  # seconds between two attempts, of holder and candidates
GIVEN_BACK: Final = 1  # seconds that a Lease without a holder is valid

logger = log.get(__name__)


class Spec(objects.Struct):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(objects.Struct):
    metadata: objects.Metadata = msgspec.field(default_factory=objects.Metadata)
    spec: Spec = msgspec.field(default_factory=Spec)


class Election:
    """One candidate. `owners`: references of what the Lease goes with."""

    def __init__(
        self,
        api: client.Api,
        namespace: str,
        name: str,
        identity: str,
        *,
        owners: Sequence[dict[str, Any]] = (),
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.identity = identity
        self.holder = ""  # as last seen
        self.failure: KubeError | None = None  # of the last attempt
        self._api, self._namespace, self._name, self._owners = api, namespace, name, owners
        self._clock, self._now, self._sleep = clock, now, sleep
        self._seen: tuple[str, Spec] | None = None  # resource version and content
        self._changed = 0.0  # when what was seen last changed, by our clock
        self._renewed: float | None = None  # when our last renewal began; None: we do not hold it

    @property
    def leads(self) -> bool:
        """False as soon as another may take over, also after this process was stopped for a while."""
        return self._renewed is not None and self._clock() - self._renewed < DEADLINE

    async def acquire(self) -> None:
        """Returns when this candidate holds the Lease."""
        while not await self._attempt():
            await self._sleep(RETRY)
        logger.info("leading", lease=self._name, identity=self.identity)

    async def keep(self) -> None:
        """Renews the Lease, and returns when it is lost, or may be soon."""
        while self.leads:
            await self._sleep(RETRY)
            if not await self._attempt_in_time() and self._taken():
                break
        self._renewed = None
        logger.warn("no longer leading", lease=self._name, holder=self.holder, why=str(self.failure or ""))

    async def give_back(self) -> None:
        """At an orderly end. If it fails, the others wait until the Lease is too old."""
        if self._renewed is None or self._seen is None:
            return
        self._renewed = None
        spec = msgspec.structs.replace(
            self._seen[1], holder_identity="", lease_duration_seconds=GIVEN_BACK, renew_time=self._stamp()
        )
        try:
            await self._replace(spec)
        except KubeError as error:
            logger.warn("the lease was not given back", lease=self._name, why=str(error))

    def _taken(self) -> bool:
        """Whether it is certain that another holds it: the API server said so."""
        return self.failure is None and self.holder != self.identity

    async def _attempt_in_time(self) -> bool:
        left = DEADLINE - (self._clock() - (self._renewed or 0.0))
        try:
            async with asyncio.timeout(max(left, 0.0)):
                return await self._attempt()
        except TimeoutError:
            self.failure = Unreachable("no answer in time", sent=True)
            return False

    async def _attempt(self) -> bool:
        """One look at the Lease, and a write if it is ours or free."""
        begun = self._clock()
        try:
            await self._look()
            if not self._free():
                return False
            await self._write()
        except KubeError as error:
            self.failure = error
            if not (isinstance(error, ApiError) and error.status == 409):  # another was faster
                logger.warn("the lease cannot be read or written", lease=self._name, why=str(error))
            return False
        self.failure, self._renewed, self.holder = None, begun, self.identity
        return True

    async def _look(self) -> None:
        found = await self._api.find(requests.read(resources.LEASES, self._namespace, self._name), Lease)
        self.failure = None
        seen = (found.metadata.resource_version, found.spec) if found is not None else None
        if seen != self._seen or seen is None:
            self._seen, self._changed = seen, self._clock()
        self.holder = (seen[1].holder_identity or "") if seen is not None else ""

    def _free(self) -> bool:
        if self._seen is None or self.holder in ("", self.identity):
            return True
        valid = max(float(self._seen[1].lease_duration_seconds or 0), DURATION)
        return self._clock() - self._changed >= valid

    async def _write(self) -> None:
        before = self._seen[1] if self._seen is not None else None
        new = before is None or before.holder_identity != self.identity
        spec = Spec(
            holder_identity=self.identity,
            lease_duration_seconds=round(DURATION),
            acquire_time=self._stamp() if before is None or new else before.acquire_time,
            renew_time=self._stamp(),
            lease_transitions=((before.lease_transitions or 0) + new) if before is not None else 0,
        )
        if self._seen is not None:
            await self._replace(spec)
            return
        body = self._body(spec, "")
        self._remember(await self._api.fetch(requests.create(resources.LEASES, self._namespace, body), Lease))

    async def _replace(self, spec: Spec) -> None:
        version = self._seen[0] if self._seen is not None else ""
        body = self._body(spec, version)
        self._remember(
            await self._api.fetch(requests.replace(resources.LEASES, self._namespace, self._name, body), Lease)
        )

    def _remember(self, written: Lease) -> None:
        self._seen, self._changed = (written.metadata.resource_version, written.spec), self._clock()

    def _body(self, spec: Spec, version: str) -> dict[str, Any]:
        metadata: dict[str, Any] = {"name": self._name, "namespace": self._namespace}
        if self._owners:
            metadata["ownerReferences"] = list(self._owners)
        if version:
            metadata["resourceVersion"] = version
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}

    def _stamp(self) -> str:
        return datetime.fromtimestamp(self._now(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
