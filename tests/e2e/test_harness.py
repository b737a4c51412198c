"""The harness keeps its own promises: nothing is left running, and nobody else's process is touched."""

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpushare.obs.errors import UserError
from tests.e2e.harness import audit, binaries, processes, shipped
from tests.e2e.harness.audit import Request
from tests.e2e.harness.cluster import Cluster
from tests.e2e.harness.processes import Processes
from tests.e2e.harness.world import World
from tests.support import wait


def test_leftovers_of_a_killed_run_are_ended(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    left = Processes(tmp_path, state).start("sleeper", "sleep", "60")
    assert processes.end_leftovers(state) == ["sleeper"]
    assert left.popen.wait(5) == -signal.SIGKILL
    assert processes.end_leftovers(state) == []


async def test_a_lane_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    told, all_of_them = tmp_path / "pid", Processes(tmp_path, tmp_path / "state.json")
    parent = all_of_them.start("parent", sys.executable, "-c", PARENT, told)
    await wait.eventually(told.exists, "the lane runs")
    lane = int(told.read_text())
    assert processes.start_time(lane)
    await all_of_them.end(parent, signal.SIGKILL)
    await wait.eventually(lambda: not processes.start_time(lane), "the lane is gone")


PARENT = """
import subprocess, sys
lane = "import os, pathlib, sys, time; from tests.e2e.harness import processes; processes.die_with_parent(); "
lane += "at = pathlib.Path(sys.argv[1]); at.with_suffix('.new').write_text(str(os.getpid())); "
lane += "at.with_suffix('.new').rename(at); time.sleep(60)"
subprocess.run([sys.executable, "-c", lane, sys.argv[1]], check=False)
"""


def test_a_process_that_only_has_the_id_of_a_leftover_is_left_alone(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    with subprocess.Popen(["sleep", "60"]) as somebody:
        state.write_text(json.dumps([{"name": "etcd", "pid": somebody.pid, "started": 1}]))
        assert processes.end_leftovers(state) == []
        assert somebody.poll() is None
        somebody.kill()


async def test_a_process_that_does_not_want_to_end_is_made_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "PATIENCE", 0.2)
    all_of_them = Processes(tmp_path, tmp_path / "state.json")
    stubborn = all_of_them.start("stubborn", "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done")
    while "ready" not in stubborn.tail():  # noqa: ASYNC110 - a log tells nobody that it grew
        await asyncio.sleep(0.01)
    assert await all_of_them.end(stubborn) == -signal.SIGKILL
    assert all_of_them.running == []


def test_what_is_missing_is_said_with_the_way_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    for tool in ("openssl", "setpriv", "etcd"):
        (tmp_path / tool).touch(mode=0o755)
    with pytest.raises(UserError) as error:
        binaries.check()
    assert error.value.render() == (
        "error: Go not found\n  why: Kubernetes v1.36.4 is built with it, once\n"
        "  try: install Go 1.21 or later (https://go.dev/dl) and have it on PATH"
    )
    assert error.value.code == 2


def test_a_mark_in_the_middle_of_a_line_of_the_audit_log_is_its_end(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    seen = audit.Audit(log)
    log.write_text('{"verb": "get"}\n{"verb": "li')
    mark = seen.mark()
    assert list(seen.since(mark)) == []
    log.write_text('{"verb": "get"}\n{"verb": "list"}\n{"verb": "watch"}\n{"verb": "pa')
    assert [request.verb for request in seen.since(mark)] == ["watch"]
    assert [request.verb for request in seen.since(0)] == ["get", "list", "watch"]
    assert [request.verb for request in seen.since(len('{"verb": "get"}\n'))] == ["list", "watch"]


async def test_rights_are_the_service_accounts_and_every_request_is_seen(world: World, cluster: Cluster) -> None:
    mark = cluster.audit.mark()
    (name,) = await world.make_pods({"name": "train", "containers": {"main": 1000}})
    may = [verb for verb in ("get", "delete") if await _may(cluster, verb, shipped.EXTENDER_USER)]
    assert may == ["get"]
    assert any(_is_creation(request, name) for request in cluster.audit.since(mark))


async def _may(cluster: Cluster, verb: str, user: str) -> bool:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": {"verb": verb, "resource": "pods", "namespace": "default"}},
    }
    answer = await cluster.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


def _is_creation(request: Request, name: str) -> bool:
    return (request.verb, request.kind, request.object_ref.name) == ("create", "pods", name)
