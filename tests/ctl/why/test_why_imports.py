"""As kubectl's plugin `gpushare why` must start at once: what it does not need is not loaded."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ctl import fake_kubectl
from tests.ctl.why.cluster import world

HEAVY = {"aiohttp", "asyncio", "dataclasses", "email", "http", "prometheus_client", "socket", "ssl"}
PROGRAM = """
import os, sys
from gpushare.ctl import screen
from gpushare.ctl.why import command
from gpushare.view import kubectl
where = screen.Screen.of(sys.stdout, sys.stderr, os.environ)
options = command.Options(**{options!r})
command.run(options, kubectl.Kubectl(None, None, where.waiting), where, now=0.0, stdin=sys.stdin.buffer)
print(*sorted(name.split(".")[0] for name in sys.modules), file=sys.stderr)
"""
CONTAINER = "{name: main, resources: {limits: {aliyun.com/gpu-mem: 3000}}}"
POD = f"{{kind: Pod, metadata: {{name: p}}, spec: {{containers: [{CONTAINER}]}}}}"


@pytest.mark.parametrize(
    ("options", "needs_yaml"),
    [({"pod": "llm"}, False), ({"pod": "cuda"}, False), ({"pod": "llm", "output": "json"}, False),
     ({"pod": "llm", "output": "yaml"}, True), ({"filename": "-"}, True)],
)  # fmt: skip
def test_through_kubectl_only_what_is_needed_is_imported(
    tmp_path: Path, options: dict[str, str], needs_yaml: bool
) -> None:
    pods = [{"name": "llm", "containers": {"main": 7000}}, {"name": "cuda", "counted": {"nvidia.com/gpu": 1}}]
    cluster = world({"pods": pods})
    paths = {name: f"/api/v1/{name}?fieldSelector=x" for name in ("nodes", "pods", "configmaps", "events")}
    paths |= {name: f"/api/v1/namespaces/default/pods/{name}" for name in ("llm", "cuda")}
    answers = {name: json.loads(cluster.get(path)) for name, path in paths.items()}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(options=options)],
        env=fake_kubectl.install(tmp_path, answers),
        input=POD.encode(),
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert b"gpu-c" in ended.stdout
    loaded = set(ended.stderr.decode().split())
    assert "msgspec" in loaded
    assert not loaded & HEAVY
    assert ("yaml" in loaded) is needs_yaml
