"""Events are sent soon, seldom twice, and never in the way."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from gpushare.kube import client
from gpushare.kube.events import LOOK, MANY, PATIENCE, Recorder
from tests.support.scripted_api import FakeTime, Server, answer, cut, hang, refuse, serve
from tests.support.wait import eventually

EVENTS = "POST /api/v1/namespaces/ml/events"
CREATED = answer({}, 201)


@dataclass
class Stage:
    server: Server
    time: FakeTime
    recorder: Recorder
    running: list[asyncio.Task[None]] = field(default_factory=list)

    def record(self, message: str = "text", **more: Any) -> None:
        said: dict[str, Any] = {
            "kind": "Pod",
            "namespace": "ml",
            "name": "train",
            "uid": "u1",
            "type": "Warning",
            "reason": "NoGPUFits",
        }
        self.recorder.record(**{**said, "message": message, **more})

    def start(self) -> None:
        self.running.append(asyncio.ensure_future(self.recorder.run()))

    def messages(self) -> list[str]:
        return [asked.body["message"] for asked in self.server.asked]


@asynccontextmanager
async def stage(
    *answers: Any,
    start: bool = True,
    busy: Callable[[], bool] = lambda: False,
    now: Callable[[], float] = lambda: 1_700_000_000.5,
) -> AsyncIterator[Stage]:
    async with serve() as server, client.connect(server.access(), timeout=5.0) as api:
        server.on(EVENTS, *(answers or (CREATED,)))
        time = FakeTime()
        recorder = Recorder(api, clock=time.clock, sleep=time.sleep, now=now, busy=busy)
        on = Stage(server, time, recorder)
        if start:
            on.start()
        try:
            yield on
        finally:
            for task in on.running:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task


async def test_an_event_is_a_core_event_about_its_object() -> None:
    async with stage() as on:
        on.record("no room")
        await eventually(lambda: on.recorder.sent == 1)
        body = on.server.asked[0].body
        assert re.fullmatch(r"train\.[0-9a-f]{16}", body["metadata"].pop("name"))
        assert body == {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": "ml"},
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": "ml", "name": "train", "uid": "u1"},
            "type": "Warning",
            "reason": "NoGPUFits",
            "message": "no room",
            "count": 1,
            "firstTimestamp": "2023-11-14T22:13:20Z",
            "lastTimestamp": "2023-11-14T22:13:20Z",
            "source": {"component": "gpushare"},
            "reportingComponent": "gpushare",
        }


async def test_an_event_about_a_node_goes_to_the_default_namespace() -> None:
    async with stage() as on:
        on.server.on("POST /api/v1/namespaces/default/events", CREATED)
        on.record(kind="Node", namespace="", name="node-1", uid="node-1")
        await eventually(lambda: on.recorder.sent == 1)
        body = on.server.asked[0].body
        assert body["metadata"]["namespace"] == "default"
        assert "namespace" not in body["involvedObject"]


async def test_the_same_sentence_waits_five_minutes_and_another_one_does_not() -> None:
    async with stage() as on:
        on.record("464 short")
        on.record("464 short")
        on.record("300 short")
        on.record("464 short", reason="Other")
        on.record("464 short", uid="u2")
        await eventually(lambda: on.recorder.sent >= 4)
        on.time.now += 299
        on.record("464 short")
        on.time.now += 1
        on.record("464 short")
        await eventually(lambda: on.recorder.sent == 5)
        assert on.messages() == ["464 short", "300 short", "464 short", "464 short", "464 short"]


async def test_a_sentence_that_is_wanted_again_is_sent_again() -> None:
    async with stage() as on:
        for count in (1, 2):
            on.record("in force: a", again=True)
            await eventually(lambda count=count: on.recorder.sent == count)  # type: ignore[misc]
        on.record("in force: a")
        on.record("in force: b", again=True)
        await eventually(lambda: on.recorder.sent == 3)
        assert on.messages() == ["in force: a", "in force: a", "in force: b"]


async def test_an_event_may_be_longer_if_it_says_so() -> None:
    async with stage() as on:
        on.record("x" * 1001, longest=1000)
        await eventually(lambda: on.recorder.sent == 1)
        assert on.messages() == ["x" * 999 + "…"]


async def test_long_words_are_cut() -> None:
    async with stage() as on:
        on.record("x" * 201, name="n" * 235 + "-" * 18)
        on.record("y" * 200)
        await eventually(lambda: on.recorder.sent == 2)
        assert on.messages() == ["x" * 199 + "…", "y" * 200]
        assert re.fullmatch(r"n{235}\.[0-9a-f]{16}", on.server.asked[0].body["metadata"]["name"])


async def test_a_name_fits_even_when_it_is_the_longest() -> None:
    async with stage() as on:
        on.record(name="n" * 253)
        await eventually(lambda: on.recorder.sent == 1)
        assert len(on.server.asked[0].body["metadata"]["name"]) == 253


async def test_a_full_queue_drops_the_oldest_and_counts_them() -> None:
    async with stage(start=False) as on:
        for number in range(1002):
            on.record(str(number))
        assert on.recorder.dropped == 2
        on.record("0")  # it was not said, so it may be said again
        assert on.recorder.dropped == 3
        on.start()
        await eventually(lambda: on.recorder.sent == 1000)
        assert on.messages()[0] == "3"
        assert on.messages()[-1] == "0"


async def test_a_flood_about_one_namespace_neither_delays_nor_displaces_the_others() -> None:
    async with stage(start=False) as on:
        on.server.on("POST /api/v1/namespaces/web/events", CREATED)
        on.record("before", namespace="web")
        for number in range(1500):
            on.record(str(number))
        on.record("after", namespace="web")
        assert on.recorder.dropped == 502
        on.start()
        await eventually(lambda: on.recorder.sent >= 4)
        assert on.messages()[:4] == ["before", "502", "after", "503"]


async def test_events_are_sent_at_a_bounded_rate() -> None:
    async with stage(start=False) as on:
        for number in range(140):
            on.record(str(number))
        begun = on.time.now
        on.start()
        await eventually(lambda: on.recorder.sent == 140)
        assert abs(on.time.now - begun - 2.0) < 0.06  # 100 at once, the others at 20 a second


async def test_a_failure_is_tried_again_once_and_then_counted() -> None:
    async with stage(cut, CREATED, refuse(503), refuse(429), CREATED) as on:
        on.record("arrives at the second attempt")
        on.record("does not arrive")
        on.record("arrives")
        await eventually(lambda: on.recorder.sent == 2)
        assert on.recorder.failed == 1
        assert on.time.slept == [1.0, 1.0]


async def test_what_is_forbidden_is_not_tried_again() -> None:
    async with stage(refuse(403, "Forbidden"), refuse(404), CREATED) as on:
        for message in ("forbidden", "namespace gone", "fine"):
            on.record(message)
        await eventually(lambda: on.recorder.sent == 1)
        assert on.recorder.failed == 2
        assert len(on.server.asked) == 3


async def test_an_event_that_is_there_already_did_arrive() -> None:
    async with stage(cut, refuse(409, "AlreadyExists")) as on:
        on.record()
        await eventually(lambda: on.recorder.sent == 1)
        assert on.recorder.failed == 0


async def test_sentences_are_not_remembered_without_end() -> None:
    async with stage(start=False) as on:
        for number in range(12_000):
            on.record(str(number))
        assert len(on.recorder._said) <= 10_000
        assert len(on.recorder._warnings) == 1000


async def test_draining_waits_until_all_is_sent() -> None:
    async with stage() as on:
        for number in range(3):
            on.record(f"text {number}")
        await on.recorder.drain(5.0)
        assert on.messages() == ["text 0", "text 1", "text 2"]
        await on.recorder.drain(5.0)  # nothing is left: it ends at once
        on.record("later")
        await on.recorder.drain(5.0)
        assert on.recorder.sent == 4


async def test_draining_ends_in_time_though_nobody_answers() -> None:
    async with stage(hang) as on:
        on.record()
        begun = asyncio.get_running_loop().time()
        await on.recorder.drain(0.1)
        assert asyncio.get_running_loop().time() - begun < 2.0
        assert on.recorder.sent == 0


async def test_normal_events_wait_while_somebody_is_busy_and_warnings_do_not() -> None:
    looks = iter([True] * 20)
    async with stage(busy=lambda: next(looks, False), start=False) as on:
        begun = on.time.clock()
        on.record("placed", type="Normal")
        on.record("no room")
        on.start()
        await eventually(lambda: on.recorder.sent == 2)
        assert on.messages() == ["no room", "placed"]
        assert LOOK * 10 < on.time.clock() - begun < LOOK * 20


async def test_an_event_that_waited_tells_when_it_happened() -> None:
    seconds, looks = iter([1_700_000_000.5, 1_700_000_020.5]), iter([True] * 20)
    async with stage(busy=lambda: next(looks, False), now=lambda: next(seconds)) as on:
        on.record("placed", type="Normal")
        await eventually(lambda: on.recorder.sent == 1)
        assert on.server.asked[0].body["firstTimestamp"] == "2023-11-14T22:13:20Z"


async def test_nobody_is_busy_for_longer_than_normal_events_wait() -> None:
    async with stage(busy=lambda: True) as on:
        begun = on.time.clock()
        on.record("placed", type="Normal")
        await eventually(lambda: on.recorder.sent == 1)
        assert PATIENCE <= on.time.clock() - begun < PATIENCE + 2 * LOOK


async def test_too_many_normal_events_do_not_wait() -> None:
    sent_when_asked: list[int] = []

    def busy() -> bool:
        sent_when_asked.append(on.recorder.sent)
        return True

    async with stage(busy=busy, start=False) as on:
        for number in range(MANY + 20):
            on.record("placed", type="Normal", uid=str(number))
        on.start()
        await eventually(lambda: sent_when_asked)
        assert (sent_when_asked[0], on.recorder.dropped) == (21, 0)


async def test_at_the_end_nothing_waits() -> None:
    async with stage(busy=lambda: True) as on:
        on.record("placed", type="Normal")
        await on.recorder.drain(5.0)
        assert on.messages() == ["placed"]


async def test_many_warnings_do_not_delay_normal_events() -> None:
    async with stage(start=False) as on:
        for number in range(50):
            on.record(f"no room {number}")
            on.record(f"placed {number}", type="Normal")
        on.start()
        await eventually(lambda: on.recorder.sent == 100)
        assert {message.partition(" ")[0] for message in on.messages()[:2]} == {"placed", "no"}
        assert sum(message.startswith("placed") for message in on.messages()[:50]) == 25


async def test_an_event_says_who_says_it() -> None:
    async with serve() as server, client.connect(server.access()) as api:
        server.on(EVENTS, CREATED)
        recorder = Recorder(api, component="my-scheduler")
        running = asyncio.create_task(recorder.run())
        Stage(server, FakeTime(), recorder).record()
        await eventually(lambda: recorder.sent == 1)
        running.cancel()
        body = server.asked[0].body
        assert (body["source"], body["reportingComponent"]) == ({"component": "my-scheduler"}, "my-scheduler")
