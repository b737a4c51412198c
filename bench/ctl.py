"""`inspect` and `why`: CPU of the whole process for a small cluster, what it starts (kubectl) apart.

As kubectl's plugin data come through `kubectl`, here a script that prints files; otherwise from an API server. The
median of several runs: a process that starts is at the mercy of whatever else runs. A larger cluster, without a
process: a terminal shows ten of many waiting pods, and must not cost much more than the table alone.
"""

import gc
import io
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from bench import world
from bench.result import Result
from bench.yardstick import HERE
from gpushare.ctl.inspect import command
from gpushare.ctl.screen import Screen
from gpushare.view import snapshot

RUNS = 9
NODES = 20
MANY_NODES, MANY_PODS, MANY_WAITING = 500, 2_000, 500
ROUNDS = 5
OWN_CPU = """
import resource, sys
from gpushare import cli
entry, *words = sys.argv[1:]
getattr(cli, entry)(words)
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, file=sys.stderr)
"""
KUBECTL = """#!/bin/sh
case "$3" in *nodes) file=nodes ;; *pods/*) file=pod ;; *pods) file=pods ;; *) file=none ;; esac
exec cat "{}/$file"
"""


def run() -> Iterator[Result]:
    yield from _terminal()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _prepare(folder)
        yield Result("inspect as kubectl's plugin, own CPU", _median(folder, "inspect_plugin"), "ms", 150, of=median)
        why = ("gpushare_plugin", "why", "team-a/asks")
        yield Result("why as kubectl's plugin, own CPU", _median(folder, *why), "ms", of=median)
        command = [sys.executable, "-m", "gpushare.devcluster.apiserver.server", "--load", str(folder / "objects")]
        config = ["--kubeconfig-out", str(folder / "kubeconfig")]
        with subprocess.Popen([*command, *config], stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                server.stdout.readline()
                yield Result("inspect by itself", _median(folder, "main", "inspect"), "ms", 450, of=median)
                yield Result("why by itself", _median(folder, "main", *why[1:]), "ms", of=median)
            finally:
                server.terminate()


class _Large:
    """A cluster whose waiting pods all ask for different amounts, as an API server lists it."""

    def __init__(self) -> None:
        nodes = [world.node(number, size=1_500) for number in range(MANY_NODES)]
        places = [(world.node_name(number % MANY_NODES), number % 8) for number in range(MANY_PODS - MANY_WAITING)]
        pods = [world.pod(f"p-{i}", 2000, node=node, gpu=gpu, size=700) for i, (node, gpu) in enumerate(places)]
        pods += [world.pod(f"w-{number}", world.TOTAL + 1 + number, size=700) for number in range(MANY_WAITING)]
        lists = {snapshot.NODES: nodes, snapshot.PODS: pods}
        self._bodies = {path: json.dumps({"items": items}).encode() for path, items in lists.items()}

    def get(self, path: str) -> bytes:
        return self._bodies.get(path, b'{"items": []}')


def _terminal() -> Iterator[Result]:
    """CPU of inspect with the waiting pods below the table, against the table alone."""
    cluster, spent = _Large(), dict[int | None, list[float]]()
    for _ in range(ROUNDS):
        for width in (None, 200):
            HERE.look()
            gc.collect()  # else chance decides in which of the two a full collection falls
            began = time.process_time()
            command.run(command.Options(), cluster, Screen(io.StringIO(), io.StringIO(), width=width))
            spent.setdefault(width, []).append(time.process_time() - began)
    name = f"inspect on a terminal against piped, {MANY_WAITING} pods waiting"
    yield Result(name, median(spent[200]) / median(spent[None]), "x", 1.6)


def _prepare(folder: Path) -> None:
    nodes = [world.node(number) for number in range(NODES)]
    pods = [
        world.pod(f"p-{number}", 2000, node=world.node_name(number % NODES), gpu=number % 8) for number in range(100)
    ]
    asks = world.pod("asks", world.HUGE)
    for file, content in (("nodes", {"items": nodes}), ("pods", {"items": [*pods, asks]}), ("pod", asks), ("none", {})):
        (folder / file).write_text(json.dumps(content))
    whole: list[dict[str, Any]] = [{"kind": "Node", **node} for node in nodes]
    whole += [{"kind": "Pod", **pod} for pod in (*pods, asks)]
    (folder / "objects").write_text("".join(json.dumps({"apiVersion": "v1", **one}) + "\n" for one in whole))
    (folder / "kubectl").write_text(KUBECTL.format(folder))
    (folder / "kubectl").chmod(0o755)


def _median(folder: Path, *words: str) -> float:
    environment = {"PATH": f"{folder}:/usr/bin:/bin", "KUBECONFIG": str(folder / "kubeconfig"), "HOME": str(folder)}
    spent = []
    for _ in range(RUNS):
        HERE.look()
        done = subprocess.run(
            [sys.executable, "-c", OWN_CPU, *words], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout, done.stderr
        spent.append(float(done.stderr.splitlines()[-1]) * 1000)
    return median(spent)
