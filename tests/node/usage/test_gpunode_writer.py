"""The GPUNode of a node is there, has an owner, is written rarely enough, and nothing waits for it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from gpushare.core.facts import objects
from gpushare.kube.client import Api
from gpushare.kube.errors import ApiError, Unreachable
from gpushare.kube.labels.this_node import ThisNode
from gpushare.kube.requests import Request
from gpushare.node.usage import gpunode_writer
from gpushare.node.usage.gpunode_writer import GpuNodeWriter
from gpushare.node.usage.model import Usage
from tests.node.usage.test_gpunode import gpu, sample

PATH = "/apis/gpushare.io/v1alpha1/gpunodes"
HOUR = 3600
LOGGED = "cannot write the GPUNode, trying again"
MISSING = ApiError(404, "NotFound", "not found")


class Server(Api):
    """Keeps one GPUNode. `fails`: what it answers instead."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] | None = None
        self.newest = 0
        self.installed = True
        self.fails: Exception | None = None
        self.asked: list[tuple[str, str]] = []
        self.takes: Callable[[], None] = lambda: None  # its time

    async def send(self, request: Request) -> bytes:
        self.asked.append((request.method, request.path.removeprefix(PATH)))
        self.takes()
        if self.fails is not None:
            raise self.fails
        if not self.installed or (self.kept is None and request.method != "POST"):
            raise MISSING
        body: Any = msgspec.to_builtins(request.body) if request.body is not None else {}
        if request.method == "POST":
            self.kept = {"metadata": body["metadata"]}
        assert self.kept is not None
        if request.method == "PATCH":
            self.kept["metadata"] |= body["metadata"]
        elif request.method == "PUT":
            if body["metadata"]["resourceVersion"] != self.kept["metadata"]["resourceVersion"]:
                raise ApiError(409, "Conflict", "the object has been modified")
            self.kept["status"] = body["status"]
        if request.method != "GET":
            self.changed()
        return msgspec.json.encode(self.kept)

    def changed(self) -> None:
        """It has a newer resource version from now on."""
        assert self.kept is not None
        self.newest += 1
        self.kept["metadata"]["resourceVersion"] = str(self.newest)

    def count(self, method: str, path: str) -> int:
        return self.asked.count((method, path))

    @property
    def owners(self) -> list[str]:
        assert self.kept is not None
        return [one["uid"] for one in self.kept["metadata"]["ownerReferences"]]


@dataclass
class World:
    server: Server = field(default_factory=Server)
    node: ThisNode = field(default_factory=lambda: ThisNode("gpu-a"))
    clock: float = 0.0
    slept: list[float] = field(default_factory=list)
    sample_seconds: float = 5.0
    warned: list[str] = field(default_factory=list)
    writer: GpuNodeWriter = field(init=False)

    def __post_init__(self) -> None:
        self.is_node("uid-1")
        self.writer = GpuNodeWriter(
            self.server, self.node, self.sample_seconds, warn=self.warned.append, clock=lambda: self.clock,
            now=lambda: self.clock, chance=lambda: 0.5, sleep=self.sleep,
        )  # fmt: skip

    def is_node(self, uid: str) -> None:
        self.node.upsert(objects.Node(objects.Metadata("gpu-a", uid=uid)))

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.clock += seconds
        await asyncio.sleep(0)

    async def passes(self, seconds: float, use: Callable[[], Usage]) -> None:
        begin = self.clock
        for passed in range(5, int(seconds) + 5, 5):
            self.clock = max(begin + passed, self.clock)
            self.writer.take(use())
            for _ in range(6):
                await asyncio.sleep(0)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    running = asyncio.create_task(world.writer.run())
    yield world
    assert not running.done()
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


def idle() -> Usage:
    return Usage("gpu-a", (gpu(),), sampled_at=0.0)


def busy(of: World) -> Callable[[], Usage]:
    return lambda: Usage("gpu-a", (gpu(sampled=sample(gpu_util=int(of.clock) % 100)),), sampled_at=of.clock)


async def test_it_is_made_with_its_node_as_owner_and_gets_a_status(world: World) -> None:
    await world.passes(10, idle)
    assert world.server.asked == [("GET", "/gpu-a"), ("POST", ""), ("PUT", "/gpu-a/status")]
    assert world.server.kept is not None
    owner = {"apiVersion": "v1", "kind": "Node", "name": "gpu-a", "uid": "uid-1"}
    assert world.server.kept["metadata"] == {"name": "gpu-a", "ownerReferences": [owner], "resourceVersion": "2"}
    assert world.server.kept["status"]["summary"]["health"] == "ok"
    assert world.writer.writes == 1


async def test_idle_gpus_cause_at_most_one_write_a_minute(world: World) -> None:
    await world.passes(HOUR, idle)
    assert 50 <= world.server.count("PUT", "/gpu-a/status") <= 60
    assert world.writer.writes == world.server.count("PUT", "/gpu-a/status")


async def test_gpus_that_change_all_the_time_cause_at_most_one_write_in_ten_seconds(world: World) -> None:
    await world.passes(HOUR, busy(world))
    assert 300 <= world.server.count("PUT", "/gpu-a/status") <= 360


async def test_the_time_that_a_write_takes_does_not_delay_the_next_one(world: World) -> None:
    def pass_() -> None:
        world.clock += 0.3

    world.server.takes = pass_
    await world.passes(HOUR, busy(world))
    assert 350 <= world.server.count("PUT", "/gpu-a/status") <= 360


async def test_a_change_after_a_quiet_time_is_written_at_once(world: World) -> None:
    await world.passes(30, idle)
    before = world.writer.writes
    await world.passes(5, lambda: Usage("gpu-a", (gpu(healthy=False, why="XID 79"),), sampled_at=30.0))
    assert world.writer.writes == before + 1


async def test_a_figure_that_creeps_is_written_in_the_end(world: World) -> None:
    await world.passes(10, idle)
    for degrees in (62, 63):
        await world.passes(10, lambda: Usage("gpu-a", (gpu(sampled=sample(temperature=degrees)),), sampled_at=0.0))  # noqa: B023
    assert world.writer.writes == 1
    await world.passes(5, lambda: Usage("gpu-a", (gpu(sampled=sample(temperature=64)),), sampled_at=0.0))
    assert world.writer.writes == 2


async def test_nodes_that_start_together_do_not_write_together() -> None:
    first = set()
    for chance in (0.0, 0.25, 0.75):
        writer = GpuNodeWriter(Server(), ThisNode("a"), 5.0, clock=lambda: 0.0, chance=lambda: chance)  # noqa: B023
        first.add(writer._not_before)
    assert len(first) == 3


async def test_one_that_is_deleted_by_hand_is_made_again(world: World) -> None:
    await world.passes(10, idle)
    world.server.kept = None
    await world.passes(70, idle)
    assert world.server.owners == ["uid-1"]
    assert world.server.kept is not None
    assert world.server.kept["status"]["gpus"]


async def test_one_that_somebody_else_changed_is_read_again_and_belongs_to_its_node_again(world: World) -> None:
    await world.passes(10, idle)
    assert world.server.kept is not None
    world.server.kept["metadata"]["ownerReferences"] = []
    world.server.changed()
    await world.passes(70, idle)
    assert world.server.owners == ["uid-1"]
    assert world.writer.writes == 2


async def test_what_became_unknown_is_not_left_in_the_status(world: World) -> None:
    await world.passes(10, lambda: Usage("gpu-a", (gpu(),), sampled_at=0.0, driver="580"))
    await world.passes(70, lambda: Usage("gpu-a", (gpu(silent=True),), sampled_at=None, failure="no driver"))
    assert world.server.kept is not None
    assert not {"driver", "sampledAt"} & world.server.kept["status"].keys()


async def test_a_node_that_is_made_again_becomes_its_owner(world: World) -> None:
    await world.passes(10, idle)
    world.is_node("uid-2")
    await world.passes(15, idle)
    assert world.server.owners == ["uid-2"]


async def test_nothing_is_written_while_there_is_no_node(world: World) -> None:
    await world.passes(10, idle)
    asked = len(world.server.asked)
    world.node.relisted(set())
    await world.passes(HOUR, busy(world))
    assert len(world.server.asked) == asked


@pytest.mark.parametrize("failure", [None, ApiError(403, "Forbidden", "no"), ApiError(422, "Invalid", "no")])
async def test_where_only_people_can_help_it_asks_about_once_a_minute_and_says_so_once(
    failure: ApiError | None, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.server.installed, world.server.fails = False, failure
    await world.passes(HOUR, busy(world))
    tries = world.server.count("GET", "/gpu-a")
    assert 50 <= tries <= 60
    assert world.slept == []
    assert caplog.messages == [LOGGED]
    world.server.installed, world.server.fails = True, None
    await world.passes(70, idle)
    assert world.writer.writes >= 1


async def test_an_api_server_that_is_away_is_asked_again_later_and_later(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.server.fails = Unreachable("connection refused", sent=False)
    await world.passes(600, idle)
    assert max(world.slept) == 10.0
    assert len(world.slept) < world.clock / 8
    assert caplog.messages == [LOGGED]
    world.server.fails = None
    await world.passes(20, idle)
    assert world.writer.writes >= 1


async def test_a_process_that_starts_again_keeps_the_times_of_conditions(world: World) -> None:
    await world.passes(10, idle)
    assert world.server.kept is not None
    before = world.server.kept["status"]["conditions"]
    again = GpuNodeWriter(world.server, world.node, 5.0, clock=lambda: 500.0, now=lambda: 500.0, chance=lambda: 0.0)
    again.take(idle())
    assert await again._update()
    assert again.writes == 1
    assert world.server.kept["status"]["conditions"] == before


def sampled(of: World) -> Callable[[], Usage]:
    return lambda: Usage("gpu-a", (gpu(),), sampled_at=of.clock)


def other_writes(of: World, at: str) -> None:
    """Another process writes what it sampled then."""
    assert of.server.kept is not None
    of.server.kept["status"]["sampledAt"] = at
    of.server.changed()


async def test_another_process_that_keeps_writing_it_is_told_and_logged_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.passes(10, sampled(world))
    for number in range(10):
        other_writes(world, f"2026-11-17T10:00:{number:02}Z")
        await world.passes(70, sampled(world))
    assert set(world.warned) == {gpunode_writer.TWICE}
    assert len(world.warned) >= 8  # of ten writes the first may be that of a predecessor
    assert caplog.messages == [gpunode_writer.TWICE]
    assert world.writer.writes >= 10  # it goes on


async def test_one_write_of_a_predecessor_and_a_change_by_hand_are_not_another_process(world: World) -> None:
    await world.passes(10, sampled(world))
    other_writes(world, "2026-11-17T10:00:00Z")
    await world.passes(70, sampled(world))
    for _ in range(5):
        world.server.changed()  # its labels, say
        await world.passes(70, sampled(world))
    other_writes(world, "2026-11-17T11:00:00Z")
    await world.passes(70, sampled(world))
    assert world.warned == []


def test_what_the_log_says_names_the_way_out() -> None:
    assert "kubectl apply -f deploy/crds/" in gpunode_writer.NOT_INSTALLED


async def test_with_a_pass_an_hour_the_first_one_is_written() -> None:
    world = World(sample_seconds=3600.0)
    running = asyncio.create_task(world.writer.run())
    world.writer.take(idle())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert world.writer.writes == 1
    running.cancel()
