"""The extender as a process, and a client that asks it as kube-scheduler does.

The process is the real command line. A test that cannot wait as long as people do changes a constant in it by name.
"""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import aiohttp

from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.extender.server import PREFIX
from tests.support import embedded_objects
from tests.support.wait import PATIENCE

Object = dict[str, Any]

_WITH_SETTINGS = """
import importlib, json, sys
for name, value in json.loads(sys.argv[1]).items():
    module, _, constant = name.rpartition(".")
    setattr(importlib.import_module(module), constant, value)
from gpushare import cli
sys.exit(cli.main(sys.argv[2:]))
"""


def command(settings: Mapping[str, object] | None = None) -> list[str]:
    """The program `gpushare`. `settings`: constants to change in it first, by their full name."""
    if settings:
        return [sys.executable, "-c", _WITH_SETTINGS, json.dumps(settings)]
    return [str(Path(sys.executable).with_name("gpushare"))]


def question(asked: Object, nodes: Sequence[str]) -> Object:
    return {"Pod": asked, "Nodes": None, "NodeNames": list(nodes)}


def binding(asked: Object, node: str) -> Object:
    meta = asked["metadata"]
    return {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": node}


def free_port() -> int:
    """One that stays free while its server is down: below those the system gives out, and each process of the tests has
    its own hundreds."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    for port in (20_000 + 500 * (worker % 24) + next(_PORTS) % 500 for _ in range(500)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


_PORTS = itertools.count(os.getpid())


class Client:
    """Asks an extender, as kube-scheduler and people do."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._session = aiohttp.ClientSession()

    async def close(self) -> None:
        await self._session.close()

    async def get(self, path: str) -> tuple[int, str]:
        async with self._session.get(f"http://127.0.0.1:{self.port}{path}") as answer:
            return answer.status, await answer.text()

    async def post(self, verb: str, body: object, seconds: float = 5.0) -> Any:
        """The extender's answer. kube-scheduler waits 5 s for it."""
        timeout = aiohttp.ClientTimeout(total=seconds)
        async with self._session.post(
            f"http://127.0.0.1:{self.port}{PREFIX}/{verb}", json=body, timeout=timeout
        ) as answer:
            assert answer.status == 200, (verb, answer.status)
            return await answer.json()

    async def filter(self, asked: Object, *nodes: str) -> Any:
        return await self.post("filter", question(asked, nodes))

    async def prioritize(self, asked: Object, *nodes: str) -> list[Object]:
        scores: list[Object] = await self.post("prioritize", question(asked, nodes))
        return scores

    async def bind(self, asked: Object, node: str, seconds: float = 5.0) -> str:
        answer = await self.post("bind", binding(asked, node), seconds)
        assert list(answer) == ["Error"]
        error: str = answer["Error"]
        return error

    async def inspect(self) -> dict[str, list[tuple[int, int]]]:
        """Used and total of each GPU by node."""
        status, text = await self.get(f"{PREFIX}/inspect")
        assert status == 200
        return {
            view["name"]: [(gpu["usedGPU"], gpu["totalGPU"]) for gpu in view["devs"]]
            for view in json.loads(text)["nodes"]
        }

    async def metrics(self) -> dict[str, float]:
        _, text = await self.get("/metrics")
        rows = (line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in rows}


async def bound(server: ApiServer, asker: Client, made: Object, node: str = "a") -> Object:
    """A new pod, bound without a filter before."""
    created = embedded_objects.create(server, made)
    assert await asker.bind(created, node) == ""
    return created


class Extender(Client):
    """`gpushare extender` as a process. `settings` are constants by their full name."""

    def __init__(
        self,
        kubeconfig: Path | None,
        *args: str,
        ports: Sequence[int] = (),
        folder: Path | None = None,
        settings: Mapping[str, object] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """`ports` besides one of its own; without a kubeconfig, the folder for its log."""
        super().__init__(free_port())
        beside = folder or (kubeconfig.parent if kubeconfig else None)
        assert beside is not None
        self.log = beside / f"extender-{self.port}.log"
        given = ["extender", "--port", *map(str, (*ports, self.port)), *args]
        if kubeconfig is not None:
            given += ["--kubeconfig", str(kubeconfig)]
        self._command = [*command(settings), *given]
        self._environ = {**os.environ, **(environ or {})}
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()
        await self.close()

    async def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, env=self._environ, stdout=log, stderr=log
            )

    async def kill(self) -> None:
        """SIGKILL, if it still runs."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)
            await self._process.wait()

    @contextlib.contextmanager
    def standing_still(self) -> Iterator[None]:
        """The process is stopped meanwhile, as on a machine that is too busy."""
        with contextlib.suppress(ProcessLookupError):
            self.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                self.signal(signal.SIGCONT)

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def ended(self, seconds: float = PATIENCE) -> int:
        """Its exit code, once it has ended."""
        assert self._process is not None
        async with asyncio.timeout(seconds):
            return await self._process.wait()

    def logged(self) -> str:
        return self.log.read_text()

    async def ready(self, seconds: float = PATIENCE) -> None:
        async with asyncio.timeout(seconds):
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    if (await self.get("/readyz"))[0] == 200:
                        return
                assert self._process is not None
                assert self._process.returncode is None, self.logged()[-2000:]
                await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def running(
    server: ApiServer, folder: Path, *args: str, settings: Mapping[str, object] | None = None
) -> AsyncIterator[Extender]:
    """An extender of this cluster, which is ready."""
    config = server.write_kubeconfig(folder / "kubeconfig")
    async with Extender(config, *args, settings=settings) as extender:
        await extender.ready()
        yield extender
