"""A real Prometheus, with the jobs of deploy/monitoring/scrape-config.yaml.

Debian builds it without the discovery of Kubernetes' pods. So targets are listed here with the labels that discovery
would give them, and the rest of each job is as shipped: what is kept, relabelled and shown to the target.
"""

import asyncio
import contextlib
import json
import subprocess
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from tests.e2e.harness import binaries, shipped
from tests.e2e.harness.cluster import Cluster, until

ADDRESS = "127.0.0.1:9090"
FOLDER = shipped.DEPLOY / "monitoring"
TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"
META = "__meta_kubernetes_pod_"
Series = list[dict[str, Any]]
Targets = Mapping[str, Mapping[str, str]]  # by address, what Kubernetes says about the pod there


def promtool(*words: str | Path, given: str | None = None, at: Path | None = None) -> str:
    """What it says; raises if it complains."""
    command = [str(binaries.monitoring("promtool")), *map(str, words)]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, cwd=at)
    assert not done.returncode, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def configuration(targets: Targets, token: Path, **settings: object) -> dict[str, Any]:
    """As shipped, with the token and the targets of a test."""
    config = yaml.safe_load((FOLDER / "scrape-config.yaml").read_text().replace(TOKEN, str(token)))
    found = [
        {"targets": [address], "labels": {META + name: value for name, value in said.items()}}
        for address, said in targets.items()
    ]
    for job in config["scrape_configs"]:
        del job["kubernetes_sd_configs"]
        job["static_configs"] = found
    return {"global": settings, "rule_files": [str(FOLDER / "rules.yaml")], **config}


class Prometheus:
    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def query(self, expression: str) -> Series:
        return await self._ask("query", query=expression)

    async def query_range(self, expression: str, start: float, end: float, step: float) -> Series:
        return await self._ask("query_range", query=expression, start=str(start), end=str(end), step=str(step))

    async def number(self, expression: str) -> float | None:
        """Of a query with one series; None: it has none."""
        found = await self.query(expression)
        return float(found[0]["value"][1]) if found else None

    async def targets(self) -> list[dict[str, Any]]:
        async with self._session.get(f"http://{ADDRESS}/api/v1/targets") as response:
            return list((await response.json())["data"]["activeTargets"])

    async def _ask(self, what: str, **words: str) -> Series:
        async with self._session.post(f"http://{ADDRESS}/api/v1/{what}", data=words) as response:
            answer = await response.json()
        assert answer["status"] == "success", (words["query"], answer)
        return list(answer["data"]["result"])


@contextlib.asynccontextmanager
async def running(cluster: Cluster, config: Mapping[str, Any], folder: Path) -> AsyncIterator[Prometheus]:
    file = folder / "prometheus.yaml"
    file.write_text(json.dumps(config))  # JSON is YAML
    await asyncio.to_thread(promtool, "check", "config", file)
    process = cluster.processes.start(
        "prometheus", binaries.monitoring("prometheus"), f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'prometheus'}", f"--web.listen-address={ADDRESS}",
    )  # fmt: skip
    try:
        await until("prometheus", lambda: cluster.answers(f"http://{ADDRESS}/-/ready"), process)
        async with aiohttp.ClientSession() as session:
            yield Prometheus(session)
    finally:
        await cluster.processes.end(process)
