"""InfluxDB of Debian as a process, with users: it can be stopped, started again with its data, and asked."""

import base64
import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp

from tests.e2e.harness import binaries
from tests.e2e.harness.cluster import Cluster, until
from tests.e2e.harness.processes import Process

URL = "http://127.0.0.1:8086"
USER, PASSWORD = "keti", "e2e-secret-of-influx"
LOGIN = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
Row = list[Any]


class Influx:
    """Of the session, or with data of its own in a `folder`."""

    def __init__(self, cluster: Cluster, folder: Path | None = None) -> None:
        self._cluster, self._folder = cluster, folder or cluster.work / "influxdb"
        self._process: Process | None = None

    async def start(self) -> None:
        settings = {
            "BIND_ADDRESS": "127.0.0.1:8088",
            "HTTP_BIND_ADDRESS": URL.removeprefix("http://"),
            "HTTP_AUTH_ENABLED": "true",
            "HTTP_LOG_ENABLED": "false",
            "REPORTING_DISABLED": "true",
            "MONITOR_STORE_ENABLED": "false",
            "META_DIR": str(self._folder / "meta"),
            "DATA_DIR": str(self._folder / "data"),
            "DATA_WAL_DIR": str(self._folder / "wal"),
        }
        environment = dict(os.environ) | {f"INFLUXDB_{name}": value for name, value in settings.items()}
        self._process = self._cluster.processes.start(
            "influxd", binaries.monitoring("influxd"), "-config", "/dev/null", environment=environment
        )
        await until("influxd", self._answers, self._process)

    async def stop(self) -> None:
        if self._process is not None:
            await self._cluster.processes.end(self._process)

    async def make_user(self) -> None:
        """The first one, who may do everything."""
        await self._ask(f"CREATE USER {USER} WITH PASSWORD '{PASSWORD}' WITH ALL PRIVILEGES", login=False)

    async def select(self, query: str, database: str = "metric") -> list[Mapping[str, Any]]:
        """The series of the answer, each with `name`, `columns` and `values`; times are seconds since 1970. None
        while there is no such database."""
        answer = await self._ask(query, db=database, epoch="s")
        (result,) = answer["results"]
        error = result.get("error", "")
        assert not error or "database not found" in error, error
        return list(result.get("series", []))

    async def rows(self, query: str) -> list[Row]:
        """Of an answer with one series; empty if it has none."""
        return [row for series in await self.select(query) for row in series["values"]]

    async def _answers(self) -> bool:
        with contextlib.suppress(aiohttp.ClientError):
            async with aiohttp.ClientSession() as session, session.get(f"{URL}/ping") as response:
                return response.status == 204
        return False

    async def _ask(self, query: str, *, login: bool = True, **parameters: str) -> Any:
        headers = {"Authorization": f"Basic {LOGIN}"} if login else {}
        async with (
            aiohttp.ClientSession(headers=headers, raise_for_status=True) as session,
            session.post(f"{URL}/query", params={"q": query, **parameters}) as response,
        ):
            return await response.json()


def password_file(folder: Path) -> Path:
    """With a line break at its end, as people write them."""
    file = folder / "influx-password"
    file.write_text(f"{PASSWORD}\n")
    return file
