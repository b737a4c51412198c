"""deploy/node-guard.yaml on a real API server: which labels, annotations and NodeFeatures each program on a node may
write."""

import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gpushare.core.facts import names
from gpushare.kube import client, requests, resources
from gpushare.kube.auth import login
from gpushare.kube.labels import features
from gpushare.kube.labels.features import Sight
from gpushare.kube.requests import Request
from tests.e2e.harness import shipped
from tests.e2e.harness.cluster import Cluster
from tests.e2e.test_node_guard import ELSEWHERE, OTHER, OWN, denied, in_force
from tests.node import world
from tests.support.api_client import Api
from tests.support.objects import Object

NODE, FINDER, VALIDATOR = "gpushare-node", "gpushare-finder", "gpushare-validator"
CRD = Path(__file__).parent / "data" / "nodefeature-crd.yaml"
FILES = [shipped.DEPLOY / name for name in ("node-ds.yaml", "node-guard.yaml", "operator/finder.yaml")]
NOT_FOUND = "gpushare labels a node only with what it has found there, and not with "
COUNT, PRODUCT, PCI = "nvidia.com/gpu.count", "nvidia.com/gpu.product", names.PCI_LABELS[0]
DRIVER = f"{names.DEPLOY_PREFIX}driver"
RIGHTS = {  # so that only the policy stands between them and what they try
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "label-guard-test"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [
        {"kind": "ServiceAccount", "name": one, "namespace": shipped.NAMESPACE} for one in (NODE, FINDER, VALIDATOR)
    ],
}
REFUSED_TO_THE_NODE_PART = (
    (DRIVER, "false"), (DRIVER, None), (names.GPU_PRESENT, "true"), ("team", "b"), (PCI, "false"),
    (names.SHARED, "true"), ("nvidia.com/device-plugin.config", "x"),
)  # fmt: skip
ACCOUNT = {
    "apiVersion": "v1",
    "kind": "ServiceAccount",
    "metadata": {"name": VALIDATOR, "namespace": shipped.NAMESPACE},
}


@pytest.fixture
async def uid(cluster: Cluster, api: Api) -> AsyncIterator[str]:
    for file in FILES:
        await cluster.kubectl("apply", "-f", file)
    await cluster.define(CRD)
    await cluster.apply(RIGHTS, ACCOUNT)
    made = [await api.create("/api/v1/nodes", world.node(name)) for name in (OWN, OTHER)]
    try:
        yield made[0]["metadata"]["uid"]
    finally:
        for name in (OWN, OTHER):
            await api.call("DELETE", f"/api/v1/nodes/{name}")
        for file in (*FILES, CRD):
            await cluster.kubectl("delete", "-f", file)
        await cluster.kubectl("delete", "clusterrolebinding/label-guard-test")
        await cluster.kubectl("delete", f"serviceaccount/{VALIDATOR}", "-n", shipped.NAMESPACE)


@contextlib.asynccontextmanager
async def acting(cluster: Cluster, account: str, uid: str) -> AsyncIterator[client.Api]:
    path = f"/api/v1/namespaces/{shipped.NAMESPACE}/serviceaccounts/{account}/token"
    bound = {"kind": "Node", "apiVersion": "v1", "name": OWN, "uid": uid}
    answer = await cluster.call("POST", path, {"spec": {"expirationSeconds": 3600, "boundObjectRef": bound}})
    config = cluster.kubeconfig(account, answer["status"]["token"])
    async with client.connect(login.load(str(config), None, os.environ, Path.home())) as connected:
        await in_force(connected)
        yield connected


def labels(given: dict[str, str | None], *, sub: str = "") -> Request:
    path = resources.NODES.item("", OWN, sub)
    return Request("PATCH", path, None, {"metadata": {"labels": given}}, requests.MERGE)


def annotations(given: dict[str, str | None]) -> Request:
    return requests.patch(resources.NODES, "", OWN, {"metadata": {"annotations": given}})


async def test_each_program_writes_its_own_labels_and_annotations(cluster: Cluster, uid: str) -> None:
    await cluster.kubectl("label", "node", OWN, f"{DRIVER}=true", "team=a", f"{PCI}=true", f"{COUNT}=1")
    async with acting(cluster, NODE, uid) as node:
        await node.send(labels({COUNT: "8", PRODUCT: "Tesla-T4", "nvidia.com/cuda.driver-version.full": "550.54.15"}))
        await node.send(labels({COUNT: None}))
        await node.send(annotations({names.NODE_GPUS: "{}"}))
        for key, value in REFUSED_TO_THE_NODE_PART:
            await denied(NOT_FOUND + key, node.send(labels({key: value, PRODUCT: "x"})))
            await denied(NOT_FOUND + key, node.send(labels({key: value}, sub="status")))
    async with acting(cluster, FINDER, uid) as finder:
        await finder.send(labels({PCI: None, names.PCI_LABELS[1]: "true", names.PCI_LABELS[2]: "true"}))
        for key in (PRODUCT, DRIVER, "team", "feature.node.kubernetes.io/pci-8086.present"):
            await denied(NOT_FOUND + key, finder.send(labels({key: "x"})))
        await denied("gpushare finder does not write to a node x", finder.send(annotations({"x": "y"})))
        await denied(names.VALIDATION, finder.send(annotations({names.VALIDATION: "{}"})))
    async with acting(cluster, VALIDATOR, uid) as validator:
        await validator.send(annotations({names.VALIDATION: "{}"}))
        await denied(names.NODE_GPUS, validator.send(annotations({names.NODE_GPUS: None})))
        for key in (PRODUCT, PCI, DRIVER):
            await denied(NOT_FOUND + key, validator.send(labels({key: "x"})))


async def test_a_program_makes_node_features_of_its_own_node_only(cluster: Cluster, uid: str) -> None:
    def feature(node: str, about: str) -> Sight:
        return Sight(about, shipped.NAMESPACE, f"{FINDER}-{node}")

    def body(sight: Sight) -> Object:
        metadata = {"name": sight.name, "labels": {features.NODE_LABEL: sight.node}}
        return {"apiVersion": "nfd.k8s-sigs.io/v1alpha1", "kind": "NodeFeature", "metadata": metadata, "spec": {}}

    own, disguised, other = feature(OWN, OWN), feature(OWN, OTHER), feature(OTHER, OTHER)
    await cluster.apply({**body(other), "metadata": {**body(other)["metadata"], "namespace": shipped.NAMESPACE}})
    async with acting(cluster, FINDER, uid) as finder:
        await finder.send(features.apply(own, FINDER, {PCI: "true"}, ()))
        await finder.send(features.delete(own))
        await finder.send(requests.create(resources.NODE_FEATURES, shipped.NAMESPACE, body(own)))
        await denied(ELSEWHERE + disguised.name, finder.send(features.apply(disguised, FINDER, {PCI: "true"}, ())))
        await denied(ELSEWHERE + other.name, finder.send(features.apply(other, FINDER, {PCI: "true"}, ())))
        await denied(ELSEWHERE + other.name, finder.send(features.delete(other)))
        await finder.send(features.delete(own))
