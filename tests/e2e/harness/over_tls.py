"""The extender of deploy/extender-tls.yaml as a process: its arguments, its probe, and certificates made as
docs/install-manifests.md says.

What a NodePort would do is left out: the extender listens where that port leads.
"""

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

from tests.e2e.harness import shipped
from tests.e2e.harness.cluster import Cluster
from tests.e2e.harness.processes import Process
from tests.support.objects import Object

GUIDE = shipped.DEPLOY.parent / "docs" / "install-manifests.md"
FILE = "extender-tls.yaml"
PATIENCE = 30.0  # seconds
ON_CONTROL_PLANES, IN_POD = "/etc/kubernetes/gpushare/", "/tls/"


class Extender(NamedTuple):
    address: str
    port: int
    entry: Object  # for the configuration of kube-scheduler


@contextlib.asynccontextmanager
async def extender(cluster: Cluster, folder: Path) -> AsyncIterator[Extender]:
    """Running and ready. All certificates are in that folder: ca.crt, tls.crt, client.crt and their keys."""
    _make_certificates(folder)
    (configuration,) = shipped.documents("scheduler/config-v1-tls.yaml")
    entry = json.loads(json.dumps(configuration["extenders"][0]).replace(ON_CONTROL_PLANES, f"{folder}/"))
    address = entry["urlPrefix"].removesuffix("/gpushare-scheduler")
    port = int(address.rpartition(":")[2])
    container = _container()
    given = (shipped.expanded(word) for word in container["args"] if word.startswith("--"))
    arguments = [word.replace(IN_POD, f"{folder}/") for word in given]
    _, _, code = container["readinessProbe"]["exec"]["command"]
    code = code.replace(IN_POD, f"{folder}/").replace(str(shipped.EXTENDER_PORT), str(port))
    with_port = (*arguments, f"--port={port}")
    async with cluster.extender(*with_port, name="extender-tls", port=port, ready=False) as process:
        await _until_probed(process, [sys.executable, "-c", code])
        yield Extender(address, port, entry)


def _make_certificates(folder: Path) -> None:
    """By the guide's own commands, up to those that need a cluster."""
    (commands,) = (block for block in GUIDE.read_text().split("```")[1::2] if "openssl req -x509" in block)
    subprocess.run(["sh", "-e", "-c", commands.partition("kubectl")[0]], cwd=folder, check=True, capture_output=True)


def _container() -> Object:
    (deployment,) = (document for document in shipped.documents(FILE) if document["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return dict(container)


async def _until_probed(process: Process, probe: list[str]) -> None:
    """By the manifest's own probe."""
    patience_ends = time.monotonic() + PATIENCE
    while (done := await asyncio.to_thread(subprocess.run, probe, capture_output=True, text=True)).returncode:
        process.check()
        assert time.monotonic() < patience_ends, done.stderr
        await asyncio.sleep(0.2)
