"""helm, as a person runs it who has nothing else on the machine: its files are in a folder of ours."""

import asyncio
import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.harness import binaries
from tests.e2e.harness.cluster import ADMIN, ROOT, Cluster, Failed

Object = dict[str, Any]
CHART = ROOT / "charts" / "gpushare"
RELEASE = NAMESPACE = "gpu-operator"  # those that people of NVIDIA's operator know


class Helm:
    """`cluster`: none for what helm does alone."""

    def __init__(self, home: Path, cluster: Cluster | None = None) -> None:
        self._environment = {"PATH": os.environ["PATH"], "HOME": str(home), "KUBECACHEDIR": str(home / "discovery")}
        if cluster:
            self._environment["KUBECONFIG"] = str(cluster.kubeconfig(ADMIN, cluster.tokens[ADMIN]))

    def __call__(self, *words: str | Path) -> str:
        """Its output; `Failed` with its words if it refuses."""
        command = [str(binaries.helm()), *map(str, words)]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    async def run(self, *words: str | Path) -> str:
        """The same, while other things go on."""
        return await asyncio.to_thread(self, *words)

    def template(self, *words: str | Path, chart: Path = CHART) -> list[Object]:
        """What an installation would make, hooks included, in its order."""
        written = self("template", RELEASE, chart, "--namespace", NAMESPACE, *words)
        return [document for document in yaml.safe_load_all(written) if document]


async def install(helm: Helm, *words: str | Path, chart: Path = CHART) -> str:
    """The command of the guide."""
    return await helm.run("install", RELEASE, chart, "--namespace", NAMESPACE, "--create-namespace", *words)
