"""Fair waiting as the cluster sees it: what is written on the pod, what is said, who is refused and woken."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from gpushare.core.facts import names
from gpushare.core.steps import finish
from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.extender import events, housekeeping, kept_annotation
from gpushare.kube import pod_requests
from gpushare.kube.client import Api
from gpushare.kube.errors import ApiError
from tests.support import embedded_objects, extender_in_process, extender_process, wait
from tests.support.embedded_objects import UNSCHEDULABLE

KEPT = '{"node":"a","gpus":[["GPU-a-1"]]}'
BESIDE = "no single GPU has 2000 MiB free besides what is kept for a pod that has waited too long"


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    """One node, two GPUs of 8000 MiB."""
    async with ApiServer(bookmark_seconds=0.2) as server:
        embedded_objects.create(server, embedded_objects.node("a", 8000, 8000))
        yield server


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "PAUSE", 0.01)
    monkeypatch.setattr(housekeeping, "PATIENCE_TICK", 0.05)


def note(server: ApiServer, name: str) -> str | None:
    found = embedded_objects.find(server, name)
    assert found is not None
    written: str | None = (found["metadata"].get("annotations") or {}).get(names.KEPT)
    return written


async def waits_long(
    server: ApiServer, extender: extender_in_process.ExtenderInProcess, made: embedded_objects.Object
) -> embedded_objects.Object:
    """A pod that was refused, and has waited for an hour."""
    created = embedded_objects.create(server, made)
    assert (await extender.filter(created, "a"))["NodeNames"] == []
    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    condition = UNSCHEDULABLE | {"lastTransitionTime": hour_ago.isoformat()}
    embedded_objects.set_status(server, made["metadata"]["name"], conditions=[condition])
    uid, pending, patience = (
        created["metadata"]["uid"],
        extender.extender.life.pending.shown,
        extender.extender.life.patience,
    )
    await wait.eventually(lambda: uid in pending and pending[uid].unschedulable, "the condition")
    patience._since[uid] = hour_ago.timestamp()  # it has been seen without the condition a moment ago
    return created


async def filled(server: ApiServer, extender: extender_in_process.ExtenderInProcess) -> None:
    """GPU 0 is full, GPU 1 is not."""
    await extender_process.bound(server, extender, embedded_objects.pod("full", 8000))
    for name in ("p", "q"):
        await extender_process.bound(server, extender, embedded_objects.pod(name, 2500))


async def test_a_pod_that_has_waited_long_gets_what_comes_free_and_everybody_is_told(server: ApiServer) -> None:
    async with extender_in_process.running(server) as extender:
        await filled(server, extender)
        large = await waits_long(server, extender, embedded_objects.pod("large", 7000))
        await wait.eventually(lambda: note(server, "large") == KEPT, "the annotation")
        await wait.eventually(lambda: [e for e in embedded_objects.events(server) if e[1] == "GPUKept"], "the event")
        (said,) = [e for e in embedded_objects.events(server) if e[1] == "GPUKept"]
        assert said[0::2] == ("Normal", "large")
        assert said[3].endswith(" 60 minutes: a GPU 1 is kept for it: 4000 MiB must still come free there.")
        small = embedded_objects.create(server, embedded_objects.pod("small", 2000))
        assert (await extender.filter(small, "a"))["FailedAndUnresolvableNodes"] == {"a": BESIDE}
        embedded_objects.set_status(server, "small", conditions=[UNSCHEDULABLE])
        await wait.eventually(
            lambda: [e for e in embedded_objects.events(server) if e[1:3] == ("NoGPUFits", "small")], "the word"
        )
        assert (await extender.metrics())["gpushare_gpus_kept"] == 1
        for name in ("p", "q"):
            embedded_objects.delete(server, name)
        await wait.eventually(lambda: embedded_objects.woken(server, "large"), "the wake-up")
        assert embedded_objects.woken(server, "small") is None
        assert (await extender.filter(large, "a"))["NodeNames"] == ["a"]
        assert await extender.bind(large, "a") == ""
        assert (await extender.metrics())["gpushare_gpus_kept"] == 0
        await wait.eventually(lambda: note(server, "large") is None, "the end of the annotation")
        assert (await extender.filter(small, "a"))["FailedAndUnresolvableNodes"] == {
            "a": "no single GPU has 2000 MiB free"
        }


async def test_the_next_extender_goes_on_with_what_the_last_one_kept(server: ApiServer) -> None:
    async with extender_in_process.running(server) as extender:
        await filled(server, extender)
        await waits_long(server, extender, embedded_objects.pod("large", 7000))
        await wait.eventually(lambda: note(server, "large") == KEPT, "the annotation")
        embedded_objects.delete(server, "full")
        await wait.eventually(lambda: embedded_objects.woken(server, "large"), "the wake-up")
        await extender_process.bound(
            server, extender, embedded_objects.pod("mid", 4000)
        )  # GPU 0 needs less than GPU 1 by now
    async with extender_in_process.running(server) as extender:
        await wait.eventually(lambda: bool(extender.ledger.kept()), "the turn")
        assert [kept.keys for kept in extender.ledger.kept()] == [(("GPU-a-1",),)]


async def test_what_is_written_on_a_pod_whose_turn_it_is_not_is_taken_off(server: ApiServer) -> None:
    async with extender_in_process.running(server) as extender:
        await filled(server, extender)
        forged: dict[str, Any] = embedded_objects.pod("forged", 7000)
        forged["metadata"]["annotations"] = {names.KEPT: KEPT}
        embedded_objects.create(server, forged)
        await wait.eventually(lambda: note(server, "forged") is None, "the end of the annotation")
        assert not extender.ledger.kept()


class Writes:
    """What is written of turns, by pod; nothing of it is answered before `go`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go, self.values = asyncio.Event(), list[tuple[str, str | None]]()
        self.failures: list[Exception] = []
        self._really = pod_requests.annotate
        monkeypatch.setattr(pod_requests, "annotate", self._write)

    async def _write(
        self, api: Api, namespace: str, name: str, uid: str, annotations: Mapping[str, str | None]
    ) -> None:
        if names.KEPT in annotations:
            self.values.append((name, annotations[names.KEPT]))
            await self.go.wait()
            if self.failures:
                raise self.failures.pop()
        await self._really(api, namespace, name, uid, annotations)


async def test_what_changes_while_it_is_written_is_written_after_it(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with extender_in_process.running(server) as extender:
        await filled(server, extender)
        writes = Writes(monkeypatch)
        await waits_long(server, extender, embedded_objects.pod("large", 7000))
        await wait.eventually(lambda: writes.values, "the first write")
        await waits_long(server, extender, embedded_objects.pod("important", 7000, priority=5))
        await wait.eventually(lambda: len(writes.values) > 1, "the write of the other")
        await asyncio.sleep(0.2)
        assert writes.values == [("large", KEPT), ("important", KEPT)]
        writes.go.set()
        await wait.eventually(lambda: len(writes.values) > 2, "the second write")
        await wait.eventually(lambda: note(server, "large") is None, "the end of the annotation")
        # The watch may show the first annotation before the second write has removed it: then it is removed once more.
        assert list(dict.fromkeys(writes.values)) == [("large", KEPT), ("important", KEPT), ("large", None)]
        await wait.eventually(lambda: note(server, "important") == KEPT, "the annotation of the other")


async def test_notes_on_many_pods_delay_no_wake_up(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async with extender_in_process.running(server) as extender:
        await filled(server, extender)
        writes = Writes(monkeypatch)
        for i in range(housekeeping.WAKE_UPS + 8):
            forged: dict[str, Any] = embedded_objects.pod(f"forged-{i}", 7000)
            forged["metadata"]["annotations"] = {names.KEPT: KEPT}
            embedded_objects.create(server, forged)
        await wait.eventually(lambda: len(writes.values) >= kept_annotation.SLOTS, "the writes")
        waits = embedded_objects.create(server, embedded_objects.pod("waits", 5000))
        assert (await extender.filter(waits, "a"))["NodeNames"] == []
        embedded_objects.delete(server, "full")
        await wait.eventually(lambda: embedded_objects.woken(server, "waits"), "the wake-up")
        assert len(writes.values) == kept_annotation.SLOTS
        writes.go.set()
        await wait.eventually(
            lambda: all(note(server, f"forged-{i}") is None for i in range(housekeeping.WAKE_UPS + 8)), "the end"
        )


async def test_a_note_that_may_not_be_written_is_tried_ever_less_often_and_said_once(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async with extender_in_process.running(server) as extender:
        await filled(server, extender)
        writes = Writes(monkeypatch)
        writes.failures = [ApiError(403, "Forbidden", "no right")] * 8
        writes.go.set()
        monkeypatch.setattr(kept_annotation, "pause", sleep)
        monkeypatch.setattr(kept_annotation, "chance", lambda: 0.5)
        await waits_long(server, extender, embedded_objects.pod("large", 7000))
        await wait.eventually(lambda: note(server, "large") == KEPT, "the annotation")
    assert slept == [1, 2, 4, 8, 16, 32, 60, 60]
    said = [record for record in caplog.records if "kept GPUs cannot be written" in record.message]
    assert len(said) == 1


async def test_explain_says_whose_turn_it_is(server: ApiServer) -> None:
    async with extender_in_process.running(server) as extender:
        await filled(server, extender)
        await waits_long(server, extender, embedded_objects.pod("large", 7000))
        await wait.eventually(lambda: bool(extender.ledger.kept()), "the turn")
        small = embedded_objects.create(server, embedded_objects.pod("small", 2000))
        await extender.filter(small, "a")
        pods = extender.extender.life.pending
        await wait.eventually(lambda: pods.find("default", "small"), "the pod")
        verbs = extender.extender.verbs
        said = [msgspec.json.decode(finish(verbs.explain("default", name))[1]) for name in ("large", "small")]
        assert said[0]["kept"] == {"node": "a", "gpus": [1], "short": 4000, "unit": "MiB"}
        assert (said[1]["code"], said[1]["before"]) == ("KeptForOther", ["default/large"])
