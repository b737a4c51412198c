"""An init container that waits for ready files says for what at once, why every 30 seconds, and on the node."""

import json
import logging
from pathlib import Path

import pytest

from gpushare.core.annotations import validation
from gpushare.core.annotations.validation import Check
from gpushare.core.facts import names
from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.kube.auth import login
from gpushare.validate import waiting
from gpushare.validate.telling import Telling
from gpushare.validate.waiting import Reason
from tests.support import embedded_objects

FILES = [("driver", "driver-ready"), ("toolkit", "toolkit-ready")]


class Time:
    """It passes while somebody sleeps; at given seconds a file appears."""

    def __init__(self, folder: Path, files: dict[float, str]) -> None:
        self.now, self.folder, self.files = 0.0, folder, files

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for at in [at for at in self.files if at <= self.now]:
            (self.folder / self.files.pop(at)).touch()

    def clock(self) -> float:
        return self.now


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    return [{"msg": record.getMessage(), **vars(record)["fields"]} for record in caplog.records]


def test_it_ends_at_once_when_the_files_are_there(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    time = Time(tmp_path, {0.0: "driver-ready"})
    time.sleep(0)
    waiting.wait(FILES[:1], "gpu-a", lambda check: None, folder=tmp_path, sleep=time.sleep, clock=time.clock)
    assert [line["msg"] for line in lines(caplog)] == ["all checks have passed"]


def test_it_says_for_what_it_waits_and_every_30_seconds_why(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    asked: list[str] = []

    def ask(check: str) -> Reason | None:
        asked.append(check)
        return Reason("driver: not loaded", "modprobe nvidia") if check == "driver" else None

    time = Time(tmp_path, {40.0: "driver-ready", 70.0: "toolkit-ready"})
    waiting.wait(FILES, "gpu-a", ask, folder=tmp_path, sleep=time.sleep, clock=time.clock)
    first, second, third, last = lines(caplog)
    assert (first["msg"], first["checks"], first["node"]) == (
        "waiting for checks of this node", "driver, toolkit", "gpu-a",
    )  # fmt: skip
    assert (second["checks"], second["since_seconds"], second["why"], second["try"]) == (
        "driver, toolkit", 30, "driver: not loaded", "modprobe nvidia",
    )  # fmt: skip
    assert (third["checks"], third["why"]) == ("toolkit", "gpushare-validator has not said why")
    assert "gpushare validate gpu-a" in str(third["try"])
    assert last["msg"] == "the checks have passed"
    assert asked == ["driver", "toolkit"]


def node(**checks: Check) -> dict[str, object]:
    return {
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "gpu-a", "annotations": {names.VALIDATION: validation.write(checks)}}, "status": {},
    }  # fmt: skip


async def test_the_reason_is_read_from_the_node_and_told_there_once() -> None:
    async with ApiServer(bookmark_seconds=0.05) as server:
        failed = Check("failed", "2026-11-17T20:00:00Z", "the driver is not loaded", "modprobe nvidia")
        embedded_objects.create(server, node(driver=failed, toolkit=Check("waiting", "2026-11-17T20:00:00Z")))
        telling = Telling("gpu-a", "gpushare-node-x", lambda: login.Access(server.url))
        for _ in range(2):
            reason = await telling._ask("toolkit")
            assert reason == ("driver: the driver is not loaded (since 2026-11-17T20:00:00Z)", "modprobe nvidia")
        message = (
            "gpushare-node-x waits for toolkit: driver: the driver is not loaded (since 2026-11-17T20:00:00Z); "
            "try: modprobe nvidia"
        )
        assert embedded_objects.events(server) == [("Warning", "WaitingForValidation", "gpu-a", message)]


async def test_without_a_reason_the_event_says_where_to_look() -> None:
    async with ApiServer(bookmark_seconds=0.05) as server:
        embedded_objects.create(server, node())
        assert await Telling("gpu-a", "gpushare-node-x", lambda: login.Access(server.url))._ask("driver") is None
        ((_, _, _, message),) = embedded_objects.events(server)
        assert message.startswith("gpushare-node-x waits for driver: no reason is known yet; try: kubectl logs")


async def test_a_later_check_that_fails_is_no_reason() -> None:
    async with ApiServer(bookmark_seconds=0.05) as server:
        embedded_objects.create(server, node(plugin=Check("failed", "2026-11-17T20:00:00Z", "x", "y")))
        assert await Telling("gpu-a", "a pod", lambda: login.Access(server.url))._ask("toolkit") is None


def test_without_a_cluster_no_more_is_known() -> None:
    assert Telling("gpu-a", "a pod", lambda: login.Access("http://127.0.0.1:1")).ask("driver") is None


def test_the_annotation_is_small_json() -> None:
    written = validation.write({"driver": Check("passed", "2026-11-17T20:00:00Z")})
    assert json.loads(written) == {"driver": {"state": "passed", "since": "2026-11-17T20:00:00Z"}}
