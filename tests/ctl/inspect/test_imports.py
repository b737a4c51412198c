"""As kubectl's plugin `gpushare inspect` must start at once: what it does not need is not loaded."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.ctl import fake_kubectl, worlds

HEAVY = {"aiohttp", "asyncio", "dataclasses", "email", "http", "prometheus_client", "socket", "ssl", "yaml"}

PROGRAM = """
import os, sys
from gpushare.ctl import screen
from gpushare.ctl.inspect import command
from gpushare.view import kubectl
where = screen.Screen.of(sys.stdout, sys.stderr, os.environ)
if {terminal}:
    where.width, where.height, where.color = 120, 40, True
command.run(command.Options(details={details}, output={output!r}), kubectl.Kubectl(None, None, where.waiting), where)
print(*sorted(name.split(".")[0] for name in sys.modules), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("terminal", "details", "output"),
    [(False, False, ""), (True, False, ""), (True, True, ""), (False, False, "wide"), (False, False, "json")],
)
def test_through_kubectl_only_what_is_needed_is_imported(
    tmp_path: Path, terminal: bool, details: bool, output: str
) -> None:
    nodes, pods = worlds.documented()
    answers = {"nodes": {"items": nodes}, "pods": {"items": pods}, "configmaps": {}}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(terminal=terminal, details=details, output=output)],
        env=fake_kubectl.install(tmp_path, answers),
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert b"gpu-d" in ended.stdout
    loaded = set(ended.stderr.decode().split())
    assert "msgspec" in loaded
    assert not loaded & HEAVY
