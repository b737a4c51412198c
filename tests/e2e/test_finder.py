"""`gpushare finder` as a process with the rights of its manifest, on a real API server, with and without NFD's kind."""

import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gpushare.core.facts import names
from gpushare.kube import client, requests, resources
from gpushare.kube.auth import login
from gpushare.kube.errors import ApiError
from gpushare.kube.labels.features import NODE_LABEL
from tests.e2e.harness import shipped
from tests.e2e.harness.cluster import Cluster
from tests.e2e.harness.figures import Figures
from tests.e2e.harness.processes import Process
from tests.node import world
from tests.support import wait
from tests.support.api_client import Api
from tests.support.objects import Object
from tests.support.sysfs import Sysfs, sysfs

__all__ = ["sysfs"]

NAME, OTHER = "found-a", "found-b"
ANY, CONTROLLER_3D, _ = names.PCI_LABELS
FOUND = {ANY: "true", CONTROLLER_3D: "true"}
FILES = [shipped.DEPLOY / "operator" / "finder.yaml", shipped.DEPLOY / "node-guard.yaml"]
CRD = Path(__file__).parent / "data" / "nodefeature-crd.yaml"
FEATURES = f"/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/{shipped.NAMESPACE}/nodefeatures"
PATIENCE = 30.0  # seconds
ACCOUNT = "gpushare-finder"
MOST_MIB = 60


@pytest.fixture
async def uid(cluster: Cluster, api: Api) -> AsyncIterator[str]:
    """Of a node in a cluster with the finder's account."""
    for file in FILES:
        await cluster.kubectl("apply", "-f", file)
    made = await api.create("/api/v1/nodes", world.node(NAME))
    await api.create("/api/v1/nodes", world.node(OTHER))
    try:
        yield made["metadata"]["uid"]
    finally:
        for name in (NAME, OTHER):
            await api.call("DELETE", f"/api/v1/nodes/{name}")
        for file in FILES:
            await cluster.kubectl("delete", "-f", file)


async def kubeconfig(cluster: Cluster, uid: str) -> Path:
    """With the token that the finder's pod on that node would have."""
    path = f"/api/v1/namespaces/{shipped.NAMESPACE}/serviceaccounts/{ACCOUNT}/token"
    bound = {"kind": "Node", "apiVersion": "v1", "name": NAME, "uid": uid}
    answer = await cluster.call("POST", path, {"spec": {"expirationSeconds": 3600, "boundObjectRef": bound}})
    return cluster.kubeconfig(ACCOUNT, answer["status"]["token"])


async def until_guarded(cluster: Cluster, uid: str) -> None:
    """API servers need a moment until a new policy is in force."""
    access = login.load(str(await kubeconfig(cluster, uid)), None, os.environ, Path.home())
    label = requests.patch(resources.NODES, "", OTHER, {"metadata": {"labels": {ANY: "true"}}})
    async with client.connect(access) as api:

        async def refused() -> bool:
            try:
                await api.send(label._replace(query={"dryRun": "All"}))
            except ApiError as error:
                return "writes to its own node" in error.message
            return False

        await wait.eventually_asked(refused, "the guard is in force", PATIENCE)


@contextlib.asynccontextmanager
async def running(cluster: Cluster, uid: str, sysfs: Sysfs, node: str = NAME) -> AsyncIterator[Process]:
    config = await kubeconfig(cluster, uid)
    words = ["--node-name", node, "--sysfs", str(sysfs.root), "--kubeconfig", str(config)]
    variables = {**os.environ, "POD_NAMESPACE": shipped.NAMESPACE}
    program = Path(sys.executable).parent / "gpushare"
    process = cluster.processes.start("finder", program, "finder", *words, environment=variables)
    try:
        yield process
        process.check()
    finally:
        assert await cluster.processes.end(process) == 0


async def labels(cluster: Cluster, name: str = NAME) -> dict[str, str]:
    found: dict[str, str] = (await cluster.get(f"/api/v1/nodes/{name}"))["metadata"].get("labels", {})
    return found


async def until_labelled(cluster: Cluster, wanted: dict[str, str]) -> None:
    async def asked() -> bool:
        return await labels(cluster) == wanted

    await wait.eventually_asked(asked, f"labels {wanted}", PATIENCE)


async def feature(api: Api) -> Object | None:
    answer = await api.get(f"{FEATURES}/{ACCOUNT}-{NAME}")
    return answer.body if answer.code == 200 else None


async def gone(api: Api) -> bool:
    return await feature(api) is None


async def test_a_node_is_labelled_and_kept_so_with_the_rights_of_the_manifest(
    cluster: Cluster, api: Api, uid: str, sysfs: Sysfs, figures: Figures
) -> None:
    sysfs.add("0x030200")
    async with running(cluster, uid, sysfs) as process:
        await until_labelled(cluster, FOUND)
        await cluster.kubectl("label", "node", NAME, f"{ANY}-")
        await until_labelled(cluster, FOUND)
        await cluster.kubectl("label", "node", NAME, "--overwrite", f"{ANY}=false", "zone=a")
        await until_labelled(cluster, FOUND | {"zone": "a"})
        resident = _resident_mib(process.popen.pid)
        figures.say("finder, resident", f"{resident:.0f} MiB")
        assert resident < MOST_MIB
    assert await labels(cluster) == FOUND | {"zone": "a"}, "they stay while it restarts"


async def test_the_next_process_takes_back_what_is_no_longer_true(cluster: Cluster, uid: str, sysfs: Sysfs) -> None:
    address = sysfs.add("0x030200")
    async with running(cluster, uid, sysfs):
        await until_labelled(cluster, FOUND)
    sysfs.remove(address)
    async with running(cluster, uid, sysfs):
        await until_labelled(cluster, {})


async def test_it_cannot_label_another_node(cluster: Cluster, uid: str, sysfs: Sysfs) -> None:
    sysfs.add("0x030200")
    await until_guarded(cluster, uid)
    async with running(cluster, uid, sysfs, node=OTHER):

        async def refused() -> bool:
            return "writes to its own node" in (cluster.logs / "finder.log").read_text()

        await wait.eventually_asked(refused, "a refusal in the log", PATIENCE)
    assert await labels(cluster, OTHER) == {}


async def test_labels_move_to_nfd_and_back(cluster: Cluster, api: Api, uid: str, sysfs: Sysfs) -> None:
    sysfs.add("0x030200")
    worker = {
        "apiVersion": "nfd.k8s-sigs.io/v1alpha1", "kind": "NodeFeature",
        "metadata": {"name": NAME, "namespace": api.namespace, "labels": {NODE_LABEL: NAME}},
        "spec": {"features": {}, "labels": {}},
    }  # fmt: skip
    await cluster.define(CRD)
    try:
        async with running(cluster, uid, sysfs):
            await until_labelled(cluster, FOUND)
            await cluster.apply(worker)
            found = await wait.eventually_asked(lambda: feature(api), "a NodeFeature", PATIENCE)
            assert found["spec"]["labels"] == FOUND
            assert found["metadata"]["labels"][NODE_LABEL] == NAME
            await until_labelled(cluster, {})
            await cluster.kubectl("delete", "nodefeature", NAME, "-n", api.namespace)
            await until_labelled(cluster, FOUND)
            await wait.eventually_asked(lambda: gone(api), "the end of the NodeFeature", PATIENCE)
    finally:
        await cluster.kubectl("delete", "-f", CRD)


def _resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
