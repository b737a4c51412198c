"""filter over HTTP: what one call costs the server, one client asking on one connection."""

import http.client
import subprocess
import sys
from collections.abc import Iterator
from statistics import fmean

from bench import world
from bench.process import cpu_seconds
from bench.result import Result
from bench.yardstick import HERE

CALLS = 1500
NODES = 500


def run() -> Iterator[Result]:
    command = [sys.executable, "-m", "bench.serve", str(NODES)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            client = http.client.HTTPConnection("127.0.0.1", int(server.stdout.readline()))
            bodies = [world.question(world.pod(f"ask-{i}", world.BIG + i), NODES) for i in range(20)]
            _ask(client, bodies, 200)
            begun = cpu_seconds(server.pid)
            _ask(client, bodies, CALLS)
            spent = (cpu_seconds(server.pid) - begun) / CALLS * 1000
        finally:
            server.terminate()
    yield Result(f"filter over HTTP, {NODES} nodes, server's side", spent, "ms", 0.6, of=fmean)


def _ask(client: http.client.HTTPConnection, bodies: list[bytes], calls: int) -> None:
    for number in range(calls):
        HERE.look()
        body = bodies[number % len(bodies)]
        client.request("POST", "/gpushare-scheduler/filter", body, {"Content-Type": "application/json"})
        answer = client.getresponse()
        assert answer.status == 200
        answer.read()
