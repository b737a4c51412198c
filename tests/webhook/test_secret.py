"""The Secret that replicas share: who makes, who reads, and what happens when somebody spoils it."""

import asyncio
import base64
import datetime
import json
from typing import Any, cast

import msgspec
import pytest

from gpushare.core.admission import guard
from gpushare.kube.client import Api
from gpushare.kube.errors import ApiError
from gpushare.kube.requests import Request
from gpushare.obs.tls import Shown
from gpushare.webhook import app, certificates, rules
from gpushare.webhook.secret import Secret

START = datetime.datetime(2026, 11, 17, 12, tzinfo=datetime.UTC)
YEAR = datetime.timedelta(days=365)


class FakeApi:
    """One Secret, as an API server keeps it: a write that names an old version is refused."""

    def __init__(self) -> None:
        self.data: dict[str, str] | None = {}
        self.version, self.writes, self.date = 1, 0, ""

    async def find(self, request: Request, kind: type[Any]) -> Any:
        await asyncio.sleep(0)  # others come in between
        if self.data is None:
            return None
        found = {"metadata": {"resourceVersion": str(self.version)}, "data": self.data}
        return msgspec.json.decode(json.dumps(found), type=kind)

    async def send(self, request: Request) -> bytes:
        await asyncio.sleep(0)
        body = cast(dict[str, Any], request.body)
        if body["metadata"]["resourceVersion"] != str(self.version):
            raise ApiError(409, "Conflict", "the object has been modified")
        self.data = (self.data or {}) | body["data"]
        self.version, self.writes = self.version + 1, self.writes + 1
        return b""


class World:
    def __init__(self, replicas: int = 1) -> None:
        self.now, self.api = START, FakeApi()
        self.replicas = [self.replica() for _ in range(replicas)]

    def replica(self) -> Secret:
        return Secret(cast(Api, self.api), Shown(), lambda: self.now, guard.NAMESPACE)


async def test_of_three_replicas_that_start_together_one_makes_and_the_others_read() -> None:
    world = World(3)
    bundles = await asyncio.gather(*(replica.refresh() for replica in world.replicas))
    assert world.api.writes == 1
    assert len(set(bundles)) == len({replica.held for replica in world.replicas}) == 1


async def test_a_renewal_is_made_once_and_read_by_all() -> None:
    world = World(3)
    await asyncio.gather(*(replica.refresh() for replica in world.replicas))
    world.now += certificates.LEAF_LIFE - certificates.LEAF_LEFT + datetime.timedelta(days=1)
    await asyncio.gather(*(replica.refresh() for replica in world.replicas))
    assert world.api.writes == 2
    assert len({replica.held for replica in world.replicas}) == 1


@pytest.mark.parametrize("garbage", [{}, {"tls.crt": "!!!"}, {"tls.crt": base64.b64encode(b"x").decode()}])
async def test_what_somebody_has_spoiled_is_put_right_with_what_is_trusted_already(garbage: dict[str, str]) -> None:
    world = World()
    (replica,) = world.replicas
    before = await replica.refresh()
    world.api.data, world.api.version = dict(garbage), world.api.version + 1
    assert await replica.refresh() == before
    assert await world.replica().refresh() == before


async def test_a_new_replica_makes_of_garbage_something_new() -> None:
    world = World()
    world.api.data = {"tls.crt": "!!!"}
    await world.replicas[0].refresh()
    assert world.replicas[0].held is not None


async def test_a_deleted_secret_stops_nobody_who_runs_and_is_named_to_who_starts() -> None:
    world = World()
    (replica,) = world.replicas
    bundle = await replica.refresh()
    world.api.data = None
    assert await replica.refresh() == bundle
    with pytest.raises(ApiError, match=r"Secret kube-system/gpushare-webhook is not there: kubectl apply -f deploy/"):
        await world.replica().refresh()
    world.api.data = {}
    assert await replica.refresh() == bundle


async def test_a_replica_killed_between_reading_and_writing_leaves_everything_as_it_was() -> None:
    world = World()
    going = asyncio.create_task(world.replicas[0].refresh())
    await asyncio.sleep(0)
    going.cancel()
    assert world.api.writes == 0
    await world.replica().refresh()
    assert world.api.writes == 1


def test_the_time_is_the_api_servers() -> None:
    world = World()
    world.api.date = "Tue, 17 Nov 2026 12:00:00 GMT"
    assert app.now(cast(Api, world.api)) == START
    world.api.date = "nonsense"
    assert app.now(cast(Api, world.api)).year >= 2026


def test_the_host_is_the_one_that_api_servers_look_for() -> None:
    assert rules.host("kube-system") == "gpushare-webhook.kube-system.svc"
    assert rules.host("gpu-operator") == "gpushare-webhook.gpu-operator.svc"
