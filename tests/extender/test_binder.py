"""Binding against an API server that does what each test says: what is reserved, what is written, what is answered."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import msgspec
import pytest

from gpushare.core.annotations import node_gpus
from gpushare.core.facts import names, objects, request
from gpushare.core.facts.model import PodFacts
from gpushare.core.ledger.holding import State
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.scheduling.life import Life
from gpushare.extender import binder
from gpushare.extender.binder import Binder
from gpushare.extender.events import Announcer
from gpushare.extender.metrics import Metrics
from gpushare.extender.wire import BindArgs
from gpushare.kube.errors import ApiError, Malformed, NoAccess, Unreachable
from gpushare.kube.events import Recorder
from tests.support import embedded_objects
from tests.support.builders import node_state
from tests.support.pod_calls import PodApi

LOST = Unreachable("the connection was lost", sent=True)
NOT_SENT = Unreachable("connection refused", sent=False)

Step = Exception | Callable[["FakeApi", objects.Pod, str, Mapping[str, str]], Awaitable[None]]


class FakeApi(PodApi):
    """Pods by name. `binds` and `reads` are what happens to the next calls; after them it behaves well."""

    def __init__(self) -> None:
        super().__init__()
        self.pods: dict[str, objects.Pod] = {}
        self.binds: list[Step] = []
        self.reads: list[Exception] = []
        self.written: list[dict[str, str]] = []  # the annotations of each binding asked for
        self.read = 0
        self.after_read: Callable[[], None] = lambda: None

    async def get_pod(self, namespace: str, name: str) -> objects.Pod | None:
        self.read += 1
        await asyncio.sleep(0)
        if self.reads:
            raise self.reads.pop(0)
        found = self.pods.get(name)
        copy = None if found is None else msgspec.json.decode(msgspec.json.encode(found), type=objects.Pod)
        self.after_read()
        return copy

    async def bind(self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]) -> None:
        self.written.append(dict(annotations))
        await asyncio.sleep(0)
        step = self.binds.pop(0) if self.binds else None
        if isinstance(step, Exception):
            raise step
        found = self.pods.get(name)
        if found is None:
            raise ApiError(404, "NotFound", f'pods "{name}" not found')
        if step is not None:
            await step(self, found, node, annotations)
            return
        if found.metadata.uid != uid:
            raise ApiError(409, "Conflict", "Precondition failed: UID in precondition")
        if found.spec.node_name:
            raise ApiError(409, "Conflict", f'pod {name} is already assigned to node "{found.spec.node_name}"')
        if found.metadata.deletion_timestamp:
            raise ApiError(409, "Conflict", f"pod {name} is being deleted, cannot be assigned to a host")
        self.make(found, node, annotations)

    @staticmethod
    def make(pod: objects.Pod, node: str, annotations: Mapping[str, str]) -> None:
        pod.spec.node_name = node
        pod.metadata.annotations = {**(pod.metadata.annotations or {}), **annotations}


async def reply_lost(fake: FakeApi, pod: objects.Pod, node: str, annotations: Mapping[str, str]) -> None:
    """The write is made, its answer never comes."""
    fake.make(pod, node, annotations)
    raise LOST


async def hang(fake: FakeApi, pod: objects.Pod, node: str, annotations: Mapping[str, str]) -> None:
    await asyncio.sleep(3600)


class Events:
    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []

    def record(self, **event: str) -> None:
        self.said.append((event["reason"], event["message"]))


class World:
    """Two nodes of two GPUs, 10000 MiB each, and a binder."""

    def __init__(self) -> None:
        self.api, self.events, self.ledger = FakeApi(), Events(), Ledger()
        self.life = Life(self.ledger, policy="binpack")
        for name in ("a", "b"):
            made = msgspec.convert(embedded_objects.node(name, 10000, 10000), objects.Node)
            facts = node_gpus.read(made, frozenset())
            assert facts is not None
            self.ledger.set_node(facts)
        self.metrics = Metrics(self.ledger)
        announcer = Announcer(cast(Recorder, self.events), self.ledger)
        self.time = 1_700_000_000_000_000_000
        self.binder = Binder(
            self.api, self.life, announcer, self.metrics,
            unit=None, identity="0a1b2c3d", nanoseconds=self._nanoseconds,
        )  # fmt: skip

    def _nanoseconds(self) -> int:
        self.time += 1
        return self.time

    def add(self, *memory: int, name: str = "train", known: bool = True, **more: Any) -> BindArgs:
        made = embedded_objects.pod(name, *memory, **more)
        made["metadata"]["uid"] = f"uid-{name}"
        pod = self.api.pods[name] = msgspec.json.decode(json.dumps(made), type=objects.Pod)
        if known:
            self.life.pending.show(request.facts(pod, None))
        return BindArgs(name, "default", f"uid-{name}", "a")

    def facts(self, name: str = "train") -> PodFacts:
        return request.facts(self.api.pods[name], None)

    def used(self, node: str = "a") -> list[int]:
        return node_state(self.ledger, node).effective().units

    def state(self, name: str = "train") -> State | None:
        holding = self.ledger.holding(f"uid-{name}")
        return None if holding is None else holding.state

    def node_of(self, name: str = "train") -> str | None:
        return self.api.pods[name].spec.node_name

    def count(self, metric: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(metric, labels) or 0.0

    def is_settled(self) -> bool:
        """Nothing is under way, and what is charged is what bound pods have."""
        held = [holding.state for holding in self.ledger.holdings()]
        return not self.binder._running and set(held) <= {State.BOUND}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(binder, "RETRY_SECONDS", (0.0, 0.0))
    return World()


# The plain way


async def test_a_binding_is_one_write_that_carries_the_node_the_uid_and_the_annotations(world: World) -> None:
    assert await world.binder.bind(world.add(6000, 5000)) == ""
    assert world.node_of() == "a"
    (notes,) = world.api.written
    assert notes[names.ALLOCATION] == '{"0":{"0":6000},"1":{"1":5000}}'
    assert notes[names.VISIBLE_PREFIX + "0"] == embedded_objects.uuid("a", 0)
    assert notes[names.VISIBLE_PREFIX + "1"] == embedded_objects.uuid("a", 1)
    assert (notes[names.ALIYUN_POD], notes[names.ALIYUN_IDX], notes[names.EXTENDER]) == ("11000", "0", "0a1b2c3d")
    assert (world.state(), world.used()) == (State.BOUND, [6000, 5000])
    assert world.api.read == 0
    assert world.count("gpushare_bound_total") == 1


async def test_memory_is_reserved_before_the_write_leaves(world: World) -> None:
    seen: list[list[int]] = []

    async def look(fake: FakeApi, pod: objects.Pod, node: str, annotations: Mapping[str, str]) -> None:
        seen.append(world.used())
        assert world.state() is State.RESERVED
        fake.make(pod, node, annotations)

    world.api.binds = [look]
    assert await world.binder.bind(world.add(6000)) == ""
    assert seen == [[6000, 0]]


async def test_two_bindings_at_once_never_get_the_same_memory(world: World) -> None:
    args = [world.add(6000, name=name) for name in ("p", "q", "r")]
    errors = await asyncio.gather(*(world.binder.bind(each) for each in args))
    assert errors == ["", "", "a: no single GPU has 6000 MiB free"]
    assert world.used() == [6000, 6000]
    assert (len(world.api.written), world.count("gpushare_bind_conflicts_total")) == (2, 1)


async def test_an_event_tells_where_the_pod_went(world: World) -> None:
    await world.binder.bind(world.add(6000))
    assert world.events.said == [("GPUAssigned", "a GPU 0: 6000 MiB for c0; 4000 of 10000 MiB left.")]


async def test_a_pod_that_asks_zero_is_bound_plainly(world: World) -> None:
    assert await world.binder.bind(world.add(0, known=False)) == ""
    assert world.node_of() == "a"
    assert world.api.written == [{}]
    assert not world.ledger.holdings()


async def test_a_pod_that_asks_zero_is_bound_once_though_the_reply_is_lost(world: World) -> None:
    args = world.add(0, known=False)
    world.api.binds = [reply_lost]
    assert await world.binder.bind(args) == ""
    assert (world.node_of(), len(world.api.written)) == ("a", 1)


async def test_a_pod_nobody_has_shown_us_is_read_first(world: World) -> None:
    assert await world.binder.bind(world.add(6000, known=False)) == ""
    assert (world.api.read, world.used()) == (1, [6000, 0])


async def test_a_pod_bound_while_it_is_read_is_counted_once(world: World) -> None:
    args = world.add(6000, known=False)

    def bound_by_another() -> None:
        world.api.make(world.api.pods["train"], "a", {names.VISIBLE_PREFIX + "0": embedded_objects.uuid("a", 1)})
        world.ledger.observe(world.facts(), 0.0)

    world.api.after_read = bound_by_another
    assert await world.binder.bind(args) == ""
    assert (world.used(), world.api.written) == ([0, 6000], [])


async def test_an_invalid_request_is_refused_with_its_sentence(world: World) -> None:
    args = world.add(cast(int, "4Gi"))
    assert await world.binder.bind(args) == "aliyun.com/gpu-mem counts MiB, not bytes"
    assert world.api.written == []


async def test_a_node_that_is_not_there_is_refused(world: World) -> None:
    args = world.add(6000)
    args.node = "nowhere"
    assert await world.binder.bind(args) == "nowhere: node(s) without a shared GPU"
    assert (world.api.written, world.is_settled()) == ([], True)


# Asked again


async def test_a_pod_already_bound_as_asked_is_answered_without_a_write(world: World) -> None:
    args = world.add(6000)
    assert await world.binder.bind(args) == ""
    assert await world.binder.bind(args) == ""
    assert (len(world.api.written), world.used()) == (1, [6000, 0])


async def test_a_pod_already_bound_elsewhere_is_an_error_that_says_where(world: World) -> None:
    args = world.add(6000)
    await world.binder.bind(args)
    args.node = "b"
    assert await world.binder.bind(args) == "train is already bound to a"
    assert world.used("b") == [0, 0]


async def test_calls_for_one_pod_share_one_write(world: World) -> None:
    args = world.add(6000)
    errors = await asyncio.gather(*(world.binder.bind(args) for _ in range(10)))
    assert errors == [""] * 10
    assert (len(world.api.written), world.used()) == (1, [6000, 0])


async def test_a_pod_is_not_bound_to_a_second_node_while_the_first_is_written(world: World) -> None:
    world.api.binds = [hang]
    args = world.add(6000)
    first = asyncio.create_task(world.binder.bind(args))
    await asyncio.sleep(0)
    other = BindArgs(args.pod_name, args.pod_namespace, args.pod_uid, "b")
    assert await world.binder.bind(other) == "binding train to a is still in progress"
    assert world.binder.target("uid-train") == "a"
    await world.binder.finish(0.01)
    assert await first == "binding train to a is still in progress"


async def test_another_pod_of_that_name_is_not_taken_for_it(world: World) -> None:
    args = world.add(6000, known=False)
    args.pod_uid = "uid-of-its-predecessor"
    assert await world.binder.bind(args) == "train of uid uid-of-its-predecessor is gone"
    assert world.api.written == []


async def test_a_uid_and_a_name_that_do_not_belong_together_bind_nothing(world: World) -> None:
    world.add(6000)
    args = world.add(1000, name="other")
    args.pod_uid = "uid-train"
    assert await world.binder.bind(args) == "other of uid uid-train is gone"
    assert (world.api.written, world.node_of(), world.node_of("other")) == ([], None, None)


async def test_a_pod_that_is_gone_is_an_error(world: World) -> None:
    args = world.add(6000, known=False)
    del world.api.pods["train"]
    assert await world.binder.bind(args) == "train of uid uid-train is gone"


async def test_a_pod_that_cannot_be_read_is_an_error_that_says_why(world: World) -> None:
    args = world.add(6000, known=False)
    world.api.reads = [NOT_SENT]
    assert await world.binder.bind(args) == "train cannot be read: connection refused"


# Holds


async def test_what_was_assumed_is_what_is_bound(world: World) -> None:
    args = world.add(6000)
    world.ledger.assume(world.facts(), "a", "spread", 0.0)
    assert await world.binder.bind(args) == ""
    assert world.used() == [6000, 0]
    assert world.count("gpushare_holds_total", outcome="right") == 1


async def test_an_assumption_elsewhere_ends_with_the_binding(world: World) -> None:
    args = world.add(6000)
    world.ledger.assume(world.facts(), "b", "binpack", 0.0)
    assert await world.binder.bind(args) == ""
    assert (world.used("a"), world.used("b")) == ([6000, 0], [0, 0])
    assert world.count("gpushare_holds_total", outcome="wrong") == 1


# A plain no


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (ApiError(403, "Forbidden", "not allowed"), "not allowed"),
        (ApiError(422, "Invalid", "no"), "no"),
        (ApiError(429, "TooManyRequests", "slowly"), "slowly"),
        (ApiError(403, "Forbidden", ""), "403 Forbidden"),
        (ApiError(404, "NotFound", 'pods "train" not found'), 'pods "train" not found'),
        (NOT_SENT, "the API server does not answer: connection refused"),
        (Malformed("/version: no major and minor version"), "/version: no major and minor version"),
        (NoAccess("the plugin fails", "exit code 1", "log in"), "the plugin fails: exit code 1 (try: log in)"),
    ],
)
async def test_a_plain_no_is_told_at_once_and_undone(world: World, failure: Exception, said: str) -> None:
    world.api.binds = [failure]
    assert await world.binder.bind(world.add(6000)) == said
    assert (len(world.api.written), world.api.read) == (1, 0)
    assert (world.used(), world.is_settled()) == ([0, 0], True)


async def test_a_refusal_without_words_is_not_taken_for_success(world: World) -> None:
    world.api.binds = [ApiError(500, "", "")] * binder.TRIES
    assert await world.binder.bind(world.add(6000)) != ""
    assert (world.node_of(), world.used()) == (None, [0, 0])


async def test_a_bug_of_ours_leaves_no_reservation_behind(world: World) -> None:
    world.api.binds = [ValueError("a bug")]
    with pytest.raises(ValueError, match="a bug"):
        await world.binder.bind(world.add(6000))
    assert (world.used(), world.is_settled()) == ([0, 0], True)


async def test_after_a_no_the_same_pod_can_be_bound_again(world: World) -> None:
    args = world.add(6000)
    world.api.binds = [ApiError(429, "TooManyRequests", "slowly")]
    assert await world.binder.bind(args) == "slowly"
    assert await world.binder.bind(args) == ""
    assert world.used() == [6000, 0]


# Answers that are lost


async def test_a_lost_answer_is_looked_up_in_the_pod_itself(world: World) -> None:
    world.api.binds = [reply_lost]
    assert await world.binder.bind(world.add(6000)) == ""
    assert (len(world.api.written), world.api.read, world.used()) == (1, 1, [6000, 0])


async def test_after_a_lost_request_the_very_same_binding_is_sent_again(world: World) -> None:
    world.api.binds = [LOST, LOST]
    assert await world.binder.bind(world.add(6000)) == ""
    first, second, third = world.api.written
    assert first == second == third
    assert world.used() == [6000, 0]


async def test_a_lost_write_that_comes_late_is_known_as_ours(world: World) -> None:
    late: list[Callable[[], None]] = []

    async def lose(fake: FakeApi, pod: objects.Pod, node: str, annotations: Mapping[str, str]) -> None:
        late.append(lambda: fake.make(pod, node, annotations))
        fake.after_read = lambda: late.pop()() if late else None  # it arrives just after we looked
        raise LOST

    world.api.binds = [lose]
    assert await world.binder.bind(world.add(6000)) == ""
    assert (len(world.api.written), world.used()) == (2, [6000, 0])


@pytest.mark.parametrize(
    "later",
    [
        NOT_SENT,
        ApiError(429, "TooManyRequests", "slowly"),
        ApiError(403, "Forbidden", "no"),
        ApiError(409, "Conflict", "please try again"),
        ApiError(500, "InternalError", "etcd"),
        NoAccess("no", "credentials", "now"),
    ],
)
async def test_no_later_refusal_settles_a_write_whose_answer_was_lost(world: World, later: Exception) -> None:
    """The first one may still arrive: memory given back now could be given out twice."""
    seen: list[State | None] = []

    async def look(fake: FakeApi, pod: objects.Pod, node: str, annotations: Mapping[str, str]) -> None:
        seen.append(world.state())
        fake.make(pod, node, annotations)  # the first one, late
        raise later

    world.api.binds = [LOST, *[later] * (binder.TRIES + 1), look]
    assert await world.binder.bind(world.add(6000)) == ""
    assert (seen, world.used(), len({frozenset(w.items()) for w in world.api.written})) == (
        [State.RESERVED],
        [6000, 0],
        1,
    )


async def test_a_gateway_timeout_leaves_it_open_whether_the_write_comes(world: World) -> None:
    world.api.binds = [ApiError(504, "Timeout", "late")] * (binder.TRIES * 2)
    assert await world.binder.bind(world.add(6000)) == ""
    assert world.used() == [6000, 0]


async def test_after_a_lost_answer_a_pod_that_is_gone_holds_nothing(world: World) -> None:
    async def lose(fake: FakeApi, pod: objects.Pod, node: str, annotations: Mapping[str, str]) -> None:
        del fake.pods["train"]
        raise LOST

    world.api.binds = [lose]
    assert await world.binder.bind(world.add(6000)) == "train of uid uid-train is gone"
    assert (world.used(), world.is_settled()) == ([0, 0], True)


async def test_reading_what_came_of_it_goes_on_until_there_is_an_answer(world: World) -> None:
    world.api.binds = [reply_lost]
    world.api.reads = [NOT_SENT, LOST, ApiError(503, "ServiceUnavailable", ""), Malformed("x")]
    assert await world.binder.bind(world.add(6000)) == ""
    assert (world.api.read, len(world.api.written)) == (5, 1)


# Conflicts, and servers that fail


async def test_of_a_failing_server_the_pod_is_asked_and_the_write_tried_again(world: World) -> None:
    world.api.binds = [ApiError(500, "InternalError", "etcd"), ApiError(503, "ServiceUnavailable", "")]
    assert await world.binder.bind(world.add(6000)) == ""
    assert (len(world.api.written), world.used()) == (3, [6000, 0])


async def test_a_server_that_keeps_failing_is_not_asked_for_ever(world: World) -> None:
    world.api.binds = [ApiError(503, "ServiceUnavailable", "etcd is away")] * 100
    assert await world.binder.bind(world.add(6000)) == "etcd is away"
    assert len(world.api.written) == binder.TRIES
    assert (world.used(), world.is_settled()) == ([0, 0], True)


async def test_a_conflict_over_a_pod_we_have_bound_is_success(world: World) -> None:
    async def made_then_conflict(fake: FakeApi, pod: objects.Pod, node: str, annotations: Mapping[str, str]) -> None:
        fake.make(pod, node, annotations)
        raise ApiError(409, "Conflict", 'pod train is already assigned to node "a"')

    world.api.binds = [made_then_conflict]
    assert await world.binder.bind(world.add(6000)) == ""
    assert (world.state(), world.used()) == (State.BOUND, [6000, 0])


async def test_a_conflict_over_a_pod_bound_elsewhere_says_where_and_counts_it_there(world: World) -> None:
    args = world.add(6000)
    world.api.make(world.api.pods["train"], "b", {names.VISIBLE_PREFIX + "0": embedded_objects.uuid("b", 1)})
    assert await world.binder.bind(args) == "train is already bound to b"
    assert (world.used("a"), world.used("b")) == ([0, 0], [0, 6000])


async def test_a_pod_that_a_predecessor_bound_there_is_bound_as_asked_on_its_own_gpu(world: World) -> None:
    """Its late write came before ours: the node is right, and what it wrote is what counts."""
    args = world.add(6000)
    world.api.make(world.api.pods["train"], "a", {names.VISIBLE_PREFIX + "0": embedded_objects.uuid("a", 1)})
    assert await world.binder.bind(args) == ""
    assert world.used("a") == [0, 6000]
    assert world.events.said == []
    kept = world.ledger.relisted(set())  # a list that began before it was created
    assert [pod.name for pod in kept] == ["train"]


async def test_a_conflict_over_another_pod_of_that_name_is_an_error(world: World) -> None:
    args = world.add(6000)
    world.api.pods["train"].metadata.uid = "uid-of-its-successor"
    assert await world.binder.bind(args) == "train of uid uid-train is gone"
    assert (world.used(), world.is_settled()) == ([0, 0], True)


async def test_a_pod_that_is_being_deleted_is_not_bound(world: World) -> None:
    args = world.add(6000)
    world.api.pods["train"].metadata.deletion_timestamp = "2026-11-15T12:00:00Z"
    assert await world.binder.bind(args) == "train is being deleted"
    assert (world.used(), world.is_settled()) == ([0, 0], True)


async def test_a_conflict_over_a_pod_that_is_not_bound_is_told(world: World) -> None:
    world.api.binds = [ApiError(409, "Conflict", "the object has been modified")]
    assert await world.binder.bind(world.add(6000)) == "the object has been modified"
    assert (len(world.api.written), world.used(), world.is_settled()) == (1, [0, 0], True)


# The cluster may be another one by now


async def test_nothing_is_written_while_a_watch_is_cut_off(world: World) -> None:
    connected = False
    world.binder._connected = lambda: connected
    task = asyncio.create_task(world.binder.bind(world.add(6000)))
    await asyncio.sleep(0.1)
    assert (world.api.written, world.used()) == ([], [0, 0])
    connected = True
    assert await task == ""
    assert world.used() == [6000, 0]


async def test_a_refused_write_is_not_sent_again_for_memory_that_others_have_got(world: World) -> None:
    async def refused_and_taken(fake: FakeApi, pod: objects.Pod, node: str, annotations: Mapping[str, str]) -> None:
        world.add(6000, name="back")
        fake.make(fake.pods["back"], "a", {names.VISIBLE_PREFIX + "0": embedded_objects.uuid("a", 0)})
        world.ledger.observe(world.facts("back"), 0.0)
        raise ApiError(500, "InternalError", "no leader")

    world.api.binds = [refused_and_taken]
    assert await world.binder.bind(world.add(6000)) == "a: other pods have taken that GPU memory in the meantime"
    assert (len(world.api.written), world.used(), world.is_settled()) == (1, [6000, 0], True)


async def test_a_lost_write_is_not_waited_for_for_ever_where_others_have_got_the_memory(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may come for a while, so the memory stays reserved. Then the scheduler may try another node."""
    monkeypatch.setattr(binder, "LOST_SECONDS", 0.1)
    monkeypatch.setattr(binder, "RETRY_SECONDS", (0.005, 0.005))

    async def lost_and_taken(fake: FakeApi, pod: objects.Pod, node: str, annotations: Mapping[str, str]) -> None:
        world.add(6000, name="back")
        fake.make(fake.pods["back"], "a", {names.VISIBLE_PREFIX + "0": embedded_objects.uuid("a", 0)})
        world.ledger.observe(world.facts("back"), 0.0)
        raise LOST

    world.api.binds = [lost_and_taken]
    binding = asyncio.create_task(world.binder.bind(world.add(6000)))
    await asyncio.sleep(0.05)
    assert (binding.done(), world.state()) == (False, State.RESERVED)
    assert await binding == "a: other pods have taken that GPU memory in the meantime"
    assert (len(world.api.written), world.used(), world.is_settled()) == (1, [6000, 0], True)


# The watch is faster


async def test_a_pod_the_watch_shows_bound_before_the_answer_is_counted_once(world: World) -> None:
    async def shown_first(fake: FakeApi, pod: objects.Pod, node: str, annotations: Mapping[str, str]) -> None:
        fake.make(pod, node, annotations)
        world.ledger.observe(request.facts(pod, None), 0.0)

    world.api.binds = [shown_first]
    assert await world.binder.bind(world.add(6000)) == ""
    assert world.used() == [6000, 0]


async def test_a_pod_the_watch_shows_gone_before_the_answer_holds_nothing(world: World) -> None:
    async def gone(fake: FakeApi, pod: objects.Pod, node: str, annotations: Mapping[str, str]) -> None:
        world.ledger.forget(pod.metadata.uid)

    world.api.binds = [gone]
    assert await world.binder.bind(world.add(6000)) == ""
    assert (world.used(), world.is_settled()) == ([0, 0], True)


async def test_a_node_that_goes_while_the_binding_is_written_harms_nobody(world: World) -> None:
    async def gone(fake: FakeApi, pod: objects.Pod, node: str, annotations: Mapping[str, str]) -> None:
        world.ledger.forget(pod.metadata.uid)
        world.ledger.remove_node(node)

    world.api.binds = [gone]
    assert await world.binder.bind(world.add(6000)) == ""
    assert world.is_settled()


async def test_a_gpu_that_goes_while_the_binding_is_written_harms_nobody(world: World) -> None:
    async def lost(fake: FakeApi, pod: objects.Pod, node: str, annotations: Mapping[str, str]) -> None:
        before = node_state(world.ledger, node).facts
        assert before is not None
        world.ledger.set_node(msgspec.structs.replace(before, gpus=before.gpus[:1]))

    assert await world.binder.bind(world.add(6000, name="first")) == ""  # GPU 0 is taken: the next gets GPU 1
    world.api.binds = [lost]
    assert await world.binder.bind(world.add(6000)) == ""


@pytest.mark.parametrize("known", [True, False])
async def test_nothing_is_written_while_the_watches_are_cut_off(
    world: World, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binder, "CONNECT_SECONDS", 0.05)
    world.binder._connected = lambda: False
    assert await world.binder.bind(world.add(6000, known=known)) == binder.CUT_OFF
    assert (world.api.written, world.used(), world.is_settled()) == ([], [0, 0], True)


async def test_nothing_is_written_if_the_watches_are_lost_while_the_pod_is_read(world: World) -> None:
    args = world.add(6000, known=False)
    connected = [True]
    world.binder._connected = lambda: connected[0]
    world.api.after_read = lambda: connected.__setitem__(0, False)
    assert await world.binder.bind(args) == binder.CUT_OFF
    assert (world.api.written, world.used(), world.is_settled()) == ([], [0, 0], True)


# Time


async def test_the_scheduler_gets_its_answer_in_time_while_the_outcome_is_pursued(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert binder.ANSWER_SECONDS < 5  # kube-scheduler's patience
    monkeypatch.setattr(binder, "ANSWER_SECONDS", 0.02)
    world = World()
    released = asyncio.Event()

    async def slow(fake: FakeApi, pod: objects.Pod, node: str, annotations: Mapping[str, str]) -> None:
        await released.wait()
        fake.make(pod, node, annotations)

    world.api.binds = [slow]
    args = world.add(6000)
    assert await world.binder.bind(args) == "binding train to a is still in progress"
    assert (world.binder.target("uid-train"), world.state(), world.used()) == ("a", State.RESERVED, [6000, 0])
    assert await world.binder.bind(args) == "binding train to a is still in progress"
    released.set()
    await world.binder.finish(5)
    assert (world.binder.target("uid-train"), world.state(), len(world.api.written)) == ("", State.BOUND, 1)
    assert await world.binder.bind(args) == ""


async def test_while_the_api_server_is_away_memory_stays_reserved_and_is_settled_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(binder, "ANSWER_SECONDS", 0.02)
    monkeypatch.setattr(binder, "RETRY_SECONDS", (0.005, 0.005))
    world = World()
    world.api.binds = [reply_lost]
    world.api.reads = [NOT_SENT] * 20
    args = world.add(6000)
    assert await world.binder.bind(args) == "binding train to a is still in progress"
    assert world.used() == [6000, 0]
    await world.binder.finish(5)
    assert (world.state(), world.used()) == (State.BOUND, [6000, 0])


async def test_stopping_waits_for_what_is_under_way_but_not_for_ever(world: World) -> None:
    world.api.binds = [hang]
    asking = asyncio.create_task(world.binder.bind(world.add(6000)))
    await asyncio.sleep(0)
    await world.binder.finish(0.01)
    assert world.binder.target("uid-train") == ""
    assert await asking == "binding train to a is still in progress"
    assert world.is_settled()


async def test_a_caller_that_goes_away_does_not_end_the_binding(world: World) -> None:
    asking = asyncio.create_task(world.binder.bind(world.add(6000)))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await world.binder.finish(5)
    assert (world.node_of(), world.state()) == ("a", State.BOUND)
