"""Several control planes: the extender over TLS, with certificates made as docs/install.md says.

What a NodePort would do is left out: the extender listens where that port leads.
"""

import asyncio
import json
import ssl
import subprocess
import sys
import time
from pathlib import Path

import aiohttp
import pytest

from tests.e2e.harness import shipped
from tests.e2e.harness.figures import Figures
from tests.e2e.harness.processes import Process
from tests.e2e.harness.world import World
from tests.support.objects import Object

GUIDE = shipped.DEPLOY.parent / "docs" / "install.md"
FILE = "extender-tls.yaml"
PATIENCE = 30.0  # seconds
ON_CONTROL_PLANES, IN_POD = "/etc/kubernetes/gpushare/", "/tls/"


def _make_certificates(folder: Path) -> None:
    """By the guide's own commands, up to those that need a cluster."""
    (commands,) = (block for block in GUIDE.read_text().split("```")[1::2] if "openssl req -x509" in block)
    subprocess.run(["sh", "-e", "-c", commands.partition("kubectl")[0]], cwd=folder, check=True, capture_output=True)


def _container() -> Object:
    (deployment,) = (document for document in shipped.documents(FILE) if document["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return dict(container)


async def _until_probed(extender: Process, probe: list[str]) -> None:
    """By the manifest's own probe."""
    patience_ends = time.monotonic() + PATIENCE
    while (done := await asyncio.to_thread(subprocess.run, probe, capture_output=True, text=True)).returncode:
        extender.check()
        assert time.monotonic() < patience_ends, done.stderr
        await asyncio.sleep(0.2)


async def test_a_scheduler_asks_over_tls_and_nobody_asks_without_a_certificate(
    world: World, figures: Figures, tmp_path: Path
) -> None:
    await world.make_nodes(2, gpus=[8000])
    _make_certificates(tmp_path)
    (configuration,) = shipped.documents("scheduler/config-v1-tls.yaml")
    entry = json.loads(json.dumps(configuration["extenders"][0]).replace(ON_CONTROL_PLANES, f"{tmp_path}/"))
    address = entry["urlPrefix"].removesuffix("/gpushare-scheduler")
    port = int(address.rpartition(":")[2])
    container = _container()
    arguments = [word.replace(IN_POD, f"{tmp_path}/") for word in container["args"] if word.startswith("--")]
    _, _, code = container["readinessProbe"]["exec"]["command"]
    code = code.replace(IN_POD, f"{tmp_path}/").replace(str(shipped.EXTENDER_PORT), str(port))

    with_port = (*arguments, f"--port={port}")
    async with world.cluster.extender(*with_port, name="extender-tls", port=port, ready=False) as extender:
        await _until_probed(extender, [sys.executable, "-c", code])
        async with world.cluster.scheduler(extenders=[entry]):
            pods = await world.make_pods(*({"name": f"pod-{i}", "containers": {"main": 8000}} for i in range(2)))
            await world.watch.until_bound(*pods, seconds=20)
        world.check_capacity()
        await _check_no_stranger_is_answered(address, tmp_path / "ca.crt")
    figures.say("over TLS", "certificates by the guide, the manifest's probe, 2 pods placed; strangers not answered")


async def _check_no_stranger_is_answered(address: str, ca: Path) -> None:
    trusting = ssl.create_default_context(cafile=str(ca))
    trusting.check_hostname = False
    async with aiohttp.ClientSession() as session:
        with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
            await session.get(f"{address}/metrics", ssl=trusting)
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"{address.replace('https', 'http')}/metrics")
