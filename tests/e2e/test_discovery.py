"""`gpushare node --discovery` with the stand-in for NVIDIA's library, and the rights of its manifests, on a real API
server: the labels of GPU Feature Discovery come, follow the GPUs, and go."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gpushare.core.facts import names
from gpushare.kube.labels.features import NODE_LABEL
from tests.e2e.harness import shipped
from tests.e2e.harness.cluster import Cluster
from tests.node import world
from tests.support import wait
from tests.support.api_client import Api
from tests.support.manifests import NODE
from tests.support.nvml import build, state

NAME = "discovered-a"
FILES = [
    shipped.DEPLOY / name for name in ("node-ds.yaml", "nvidia-ds.yaml", "node-guard.yaml", "operator/discovery.yaml")
]
SHARES = ("--memory-unit=MiB", "--pin=direct")
SELLER = "gpushare-nvidia"
TIME_SLICING = """
version: v1
sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}
"""
CRD = Path(__file__).parent / "data" / "nodefeature-crd.yaml"
FEATURE = f"/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/{shipped.NAMESPACE}/nodefeatures/{names.DISCOVERY_MANAGER}-{NAME}"
PATIENCE = 30.0
TOLD = {
    "nvidia.com/gpu.product": "Tesla-T4",
    "nvidia.com/gpu.count": "2",
    "nvidia.com/gpu.memory": "16276",
    "nvidia.com/gpu.family": "turing",
    "nvidia.com/gpu.compute.major": "7",
    "nvidia.com/gpu.replicas": "1",
    "nvidia.com/gpu.sharing-strategy": "none",
    "nvidia.com/cuda.driver-version.full": "550.54.14",
    "nvidia.com/cuda.runtime-version.full": "12.4",
    "nvidia.com/mps.capable": "false",
}


class Discovered:
    def __init__(self, cluster: Cluster, api: Api, mock: state.Mock) -> None:
        self.cluster, self.api, self.mock = cluster, api, mock

    async def labels(self) -> dict[str, str]:
        """Those of discovery."""
        found = (await self.cluster.get(f"/api/v1/nodes/{NAME}"))["metadata"].get("labels", {})
        return {key: value for key, value in found.items() if key.startswith("nvidia.com/") and "deploy" not in key}

    async def until(self, **values: str) -> None:
        wanted = {f"nvidia.com/gpu.{key}": value for key, value in values.items()}

        async def told() -> bool:
            return wanted.items() <= (await self.labels()).items()

        await wait.eventually_asked(told, f"{wanted}", PATIENCE)

    async def until_none(self) -> None:
        async def none() -> bool:
            return await self.labels() == {}

        await wait.eventually_asked(none, "no labels", PATIENCE)

    async def label(self, *words: str) -> None:
        await self.cluster.kubectl("label", "node", NAME, "--overwrite", *words)

    async def feature(self) -> dict[str, str] | None:
        answer = await self.api.get(FEATURE)
        return dict(answer.body["spec"]["labels"]) if answer.code == 200 else None


@pytest.fixture
async def machine(cluster: Cluster, api: Api, tmp_path: Path) -> AsyncIterator[Discovered]:
    """A node with two GPUs, in a cluster with NFD's kind, and nothing that runs."""
    for file in FILES:
        await cluster.kubectl("apply", "-f", file)
    await cluster.define(CRD)
    await api.create("/api/v1/nodes", world.node(NAME))
    mock = state.Mock(tmp_path / "gpus")
    mock.show(state.card(0), state.card(1))
    try:
        yield Discovered(cluster, api, mock)
    finally:
        await api.call("DELETE", f"/api/v1/nodes/{NAME}")
        for file in (*FILES, CRD):
            await cluster.kubectl("delete", "-f", file)


@pytest.fixture
async def discovered(machine: Discovered) -> AsyncIterator[Discovered]:
    """The same with a node part that sells shares."""
    async with node_part(machine, NODE, *SHARES):
        yield machine


@contextlib.asynccontextmanager
async def node_part(machine: Discovered, account: str, *words: str) -> AsyncIterator[None]:
    cluster, mock = machine.cluster, machine.mock
    uid = (await cluster.get(f"/api/v1/nodes/{NAME}"))["metadata"]["uid"]
    path = f"/api/v1/namespaces/{shipped.NAMESPACE}/serviceaccounts/{account}/token"
    bound = {"kind": "Node", "apiVersion": "v1", "name": NAME, "uid": uid}
    answer = await cluster.call("POST", path, {"spec": {"expirationSeconds": 3600, "boundObjectRef": bound}})
    config = cluster.kubeconfig(account, answer["status"]["token"])
    library = mock.path.parent
    await asyncio.to_thread(build.build, library)
    variables = {
        **os.environ, state.VARIABLE: str(mock.path), "LD_LIBRARY_PATH": str(library),
        "NODE_NAME": NAME, "POD_NAMESPACE": shipped.NAMESPACE,
    }  # fmt: skip
    process = cluster.processes.start(
        "gpushare-node", Path(sys.executable).parent / "gpushare", "node", *words, "--discovery=auto",
         "--sample-seconds=0", "--kubeconfig", config, environment=variables,
    )  # fmt: skip
    try:
        yield
        process.check()
    finally:
        await cluster.processes.end(process)


async def test_labels_come_with_the_gpus_and_follow_them(discovered: Discovered) -> None:
    await discovered.until(count="2")
    assert TOLD.items() <= (await discovered.labels()).items()
    await discovered.label("nvidia.com/gpu.count-", "nvidia.com/gpu.product=mine")
    await discovered.until(count="2", product="Tesla-T4")
    discovered.mock.show(state.card(0, 16276, "mig=1"), state.card(1, 16276, "mig=1"))
    await discovered.until(replicas="0")


async def test_a_label_of_the_node_switches_discovery_off(discovered: Discovered) -> None:
    await discovered.until(count="2")
    await discovered.label(f"{names.DISCOVERED}=false")
    await discovered.until_none()
    await discovered.label(f"{names.DISCOVERED}=true")
    await discovered.until(count="2")


async def test_labels_go_through_nfd_where_it_runs(discovered: Discovered) -> None:
    await discovered.until(count="2")
    await discovered.cluster.apply(
        {
            "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
            "kind": "NodeFeature",
            "metadata": {"name": NAME, "namespace": discovered.api.namespace, "labels": {NODE_LABEL: NAME}},
            "spec": {},
        }
    )
    found = await wait.eventually_asked(discovered.feature, "a NodeFeature", PATIENCE)
    assert TOLD.items() <= found.items()
    await discovered.until_none()
    await discovered.cluster.kubectl("delete", "nodefeature", NAME, "-n", discovered.api.namespace)
    await discovered.until(count="2")


async def test_a_node_that_sells_replicas_says_so(machine: Discovered, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(TIME_SLICING)
    words = ("--sell=gpus", f"--config-file={config}", f"--kubelet-socket={tmp_path}/kubelet.sock")
    async with node_part(machine, SELLER, *words):
        await machine.until(count="2", replicas="4", product="Tesla-T4-SHARED")
        assert (await machine.labels())["nvidia.com/gpu.sharing-strategy"] == "time-slicing"
        config.write_text("version: v1\n")
        await machine.until(replicas="1", product="Tesla-T4")
