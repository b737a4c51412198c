"""Of several candidates one leads, whatever their clocks say, and whatever the API server does."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest

from gpushare.kube import client, lease
from gpushare.kube.errors import ApiError, KubeError, Unreachable
from gpushare.kube.lease import Election, Lease
from gpushare.kube.requests import Request

Object = dict[str, Any]


class Clock:
    """One for all candidates, as far as it passes at the same speed everywhere."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Leases:
    """An API server with one Lease, or none."""

    def __init__(self) -> None:
        self.there: Object | None = None
        self.failure: KubeError | None = None
        self.before_write: Callable[[], None] = lambda: None
        self.writes = 0

    async def find(self, request: Request, kind: type[Lease]) -> Lease | None:
        self._fail()
        return None if self.there is None else msgspec.convert(self.there, kind)

    async def fetch(self, request: Request, kind: type[Lease]) -> Lease:
        self._fail()
        self.before_write()
        body = msgspec.to_builtins(request.body)
        version = body["metadata"].pop("resourceVersion", None)
        if request.method == "POST" and self.there is not None:
            raise ApiError(409, "AlreadyExists", "")
        if request.method == "PUT":
            if self.there is None:
                raise ApiError(404, "NotFound", "")
            if version != self.there["metadata"]["resourceVersion"]:
                raise ApiError(409, "Conflict", "")
        self.put(body)
        return msgspec.convert(self.there, kind)

    def put(self, body: Object) -> None:
        self.writes += 1
        self.there = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.writes)}}

    @property
    def holder(self) -> str:
        assert self.there is not None
        return str(self.there["spec"].get("holderIdentity", ""))

    def _fail(self) -> None:
        if self.failure is not None:
            raise self.failure


class Candidate:
    """It sleeps until the test lets time pass; `wall` is how far its clock of the day is off."""

    def __init__(self, api: Leases, clock: Clock, name: str, wall: float = 0.0, **options: Any) -> None:
        self.waiting = asyncio.Event()
        self._clock, self._due = clock, 0.0
        self.election = Election(
            cast(client.Api, api), "gpu-operator", "gpushare-operator", name,
            clock=clock, now=lambda: clock.now + wall, sleep=self._sleep, **options,
        )  # fmt: skip
        self.terms = 0

    async def run(self) -> None:
        while True:
            await self.election.acquire()
            self.terms += 1
            await self.election.keep()

    async def _sleep(self, seconds: float) -> None:
        self._due = self._clock() + seconds
        while self._clock() < self._due:  # noqa: ASYNC110 -- the test moves the clock
            await asyncio.sleep(0)


@pytest.fixture
def api() -> Leases:
    return Leases()


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def turns() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def pass_by(clock: Clock, seconds: float) -> None:
    await turns()
    for _ in range(round(seconds * 2)):
        clock.now += 0.5
        await turns()


@pytest.fixture
async def tasks() -> Any:
    running: list[asyncio.Task[None]] = []

    def start(candidate: Candidate) -> asyncio.Task[None]:
        running.append(asyncio.create_task(candidate.run()))
        return running[-1]

    yield start
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def test_of_two_candidates_one_leads_and_the_other_waits(api: Leases, clock: Clock, tasks: Any) -> None:
    a, b = Candidate(api, clock, "a"), Candidate(api, clock, "b")
    tasks(a), tasks(b)
    await pass_by(clock, 60)
    assert (a.election.leads, b.election.leads, api.holder) == (True, False, "a")
    assert b.election.holder == "a"
    assert (a.terms, b.terms) == (1, 0)


async def test_after_a_leader_was_killed_the_other_leads_within_the_time_of_the_lease(
    api: Leases, clock: Clock, tasks: Any
) -> None:
    a, b = Candidate(api, clock, "a"), Candidate(api, clock, "b")
    killed = tasks(a)
    await turns()
    tasks(b)
    await pass_by(clock, 6)
    killed.cancel()
    await pass_by(clock, lease.DURATION - lease.RETRY - 0.5)
    assert not b.election.leads
    await pass_by(clock, 2 * lease.RETRY + 1)
    assert b.election.leads
    assert api.there is not None
    assert api.there["spec"]["leaseTransitions"] == 1


async def test_a_lease_that_is_given_back_is_taken_at_the_next_look(api: Leases, clock: Clock, tasks: Any) -> None:
    a, b = Candidate(api, clock, "a"), Candidate(api, clock, "b")
    ended = tasks(a)
    await turns()
    tasks(b)
    await pass_by(clock, 4)
    ended.cancel()
    await a.election.give_back()
    assert not a.election.leads
    assert api.holder == ""
    await pass_by(clock, lease.RETRY)
    assert b.election.leads


async def test_clocks_of_the_day_are_never_compared(api: Leases, clock: Clock, tasks: Any) -> None:
    a, b = Candidate(api, clock, "a", wall=-86400.0), Candidate(api, clock, "b", wall=86400.0)
    tasks(a)
    await turns()
    tasks(b)
    await pass_by(clock, 60)
    assert (a.election.leads, b.election.leads) == (True, False)


async def test_a_leader_that_was_stopped_for_a_minute_does_not_lead_when_it_goes_on(
    api: Leases, clock: Clock, tasks: Any
) -> None:
    a = Candidate(api, clock, "a")
    tasks(a)
    await turns()
    assert a.election.leads
    clock.now += 60
    assert not a.election.leads  # before any task of it has run


async def test_a_leader_that_cannot_renew_stops_before_another_may_lead(api: Leases, clock: Clock, tasks: Any) -> None:
    a = Candidate(api, clock, "a")
    tasks(a)
    await pass_by(clock, 4)
    api.failure = Unreachable("no answer", sent=True)
    begun = clock.now
    while a.election.leads:
        await pass_by(clock, 0.5)
    assert clock.now - begun <= lease.DEADLINE < lease.DURATION
    assert a.terms == 1
    api.failure = None
    await pass_by(clock, lease.RETRY)
    assert a.election.leads
    assert a.terms == 2


async def test_a_short_failure_is_sat_out(api: Leases, clock: Clock, tasks: Any) -> None:
    a = Candidate(api, clock, "a")
    tasks(a)
    await pass_by(clock, 4)
    api.failure = ApiError(500, "InternalError", "")
    await pass_by(clock, 5)
    api.failure = None
    await pass_by(clock, 5)
    assert a.election.leads
    assert a.terms == 1


async def test_whoever_writes_second_loses(api: Leases, clock: Clock, tasks: Any) -> None:
    a = Candidate(api, clock, "a")
    other = {"metadata": {"name": "x"}, "spec": {"holderIdentity": "b", "leaseDurationSeconds": 15}}
    api.before_write = lambda: api.put(other)
    tasks(a)
    await turns()
    assert not a.election.leads
    assert isinstance(a.election.failure, ApiError)
    assert a.election.failure.status == 409


async def test_a_leader_that_sees_another_holder_stops_at_once(api: Leases, clock: Clock, tasks: Any) -> None:
    a = Candidate(api, clock, "a")
    tasks(a)
    await turns()
    api.put({"metadata": {"name": "x"}, "spec": {"holderIdentity": "b", "leaseDurationSeconds": 15}})
    await pass_by(clock, lease.RETRY)
    assert not a.election.leads


async def test_a_lease_that_was_deleted_is_made_again(api: Leases, clock: Clock, tasks: Any) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "gpushare-operator", "uid": "1"}
    a = Candidate(api, clock, "a", owners=[owner])
    tasks(a)
    await turns()
    api.there = None
    await pass_by(clock, lease.RETRY)
    assert a.election.leads
    assert api.there is not None
    assert api.there["metadata"]["ownerReferences"] == [owner]


async def test_nothing_is_given_back_that_is_not_held(api: Leases, clock: Clock) -> None:
    await Candidate(api, clock, "a").election.give_back()
    assert api.writes == 0


async def test_a_lease_that_cannot_be_given_back_is_left(api: Leases, clock: Clock) -> None:
    a = Candidate(api, clock, "a")
    await a.election.acquire()
    api.failure = Unreachable("no answer", sent=False)
    await a.election.give_back()
    assert not a.election.leads
