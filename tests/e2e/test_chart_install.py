"""The chart on a real API server without a kubelet: installed, upgraded, rolled back and uninstalled by helm.

The operator and the Jobs of helm run as processes, with the words and the account of their templates, so every right
that they need is in the chart, or a test fails. The parts on nodes are in test_operator.py.
"""

import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpushare.operator.applying import pod_security
from tests.e2e.harness import audit, charts, shipped, snapshot
from tests.e2e.harness.charts import CHART, NAMESPACE, RELEASE, Helm
from tests.e2e.harness.cluster import Cluster, Failed
from tests.e2e.harness.figures import Figures
from tests.e2e.harness.stand_in_pods import Pods
from tests.support import wait

pytestmark = pytest.mark.own_cluster

Object = dict[str, Any]
OPERATOR = "gpushare-operator"
POLICY = "/apis/gpushare.io/v1alpha1/clusterpolicies/cluster-policy"
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/clusterpolicies.gpushare.io"
NAMESPACES = f"/api/v1/namespaces/{NAMESPACE}"
NEW = "dashboard"  # a component that the CRD of an older chart does not know
PATIENCE = 60.0
FORBIDDEN = 403
NOT_OURS = ("leases ", "controllerrevisions ", "ipaddresses ")  # Kubernetes makes them at moments of its own
NO_PODS = "scheduler.enabled=false"  # nothing is left that needs a node, so the policy is ready without one
ON = (
    "driver.enabled=true,driver.version=595.91.07-ubuntu24.04,toolkit.enabled=true,nodeStatusExporter.enabled=true,"
    "mps.enabled=true,sharing.mpsSlots=10,monitoring.enabled=true,daemonsets.taint=true"
)


@pytest.fixture
async def helm(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Helm]:
    """In a cluster that has nothing else of gpushare. The namespace is there afterwards, and is deleted here."""
    others = shipped.rights()
    await cluster.kubectl("delete", "-f", "-", "--ignore-not-found", given=yaml.safe_dump_all(others))
    yield Helm(tmp_path, cluster)
    await cluster.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=60s")
    await cluster.apply(*others)


@pytest.fixture
def pods(cluster: Cluster) -> Pods:
    return Pods(cluster, NAMESPACE)


async def test_from_install_to_uninstall_and_nothing_is_left(
    cluster: Cluster, helm: Helm, pods: Pods, tmp_path: Path, figures: Figures
) -> None:
    await cluster.kubectl("create", "namespace", NAMESPACE)  # else what Kubernetes makes in it would be new
    await _until_settled(cluster)
    before = await _everything(cluster)

    said = await charts.install(helm, "--set", NO_PODS, chart=_older(tmp_path))
    assert "kubectl get clusterpolicy" in said
    async with pods.deployment(OPERATOR) as operator, pods.running():
        await _until_state(cluster, "ready")
        assert pod_security.LABELS.items() <= (await _labels(cluster)).items()

        assert NEW not in await _spec(cluster)
        await _upgrade(helm, f"{NO_PODS},{NEW}.enabled=true")
        assert pods.ended == ["operator --install-crds: 0"]
        assert (await _spec(cluster))[NEW]["enabled"] is True

        await helm.run("rollback", RELEASE, "1", "--namespace", NAMESPACE)
        assert not (await _spec(cluster)).get(NEW, {}).get("enabled")
        operator.check()

        await _until_state(cluster, "ready")
        assert "Succeeded" in await helm.run("test", RELEASE, "--namespace", NAMESPACE)
        assert pods.ended[-1] == "validate: 0"

        await _upgrade(helm, NO_PODS)
        started = asyncio.get_running_loop().time()
        await helm.run("uninstall", RELEASE, "--namespace", NAMESPACE)
        figures.say("helm uninstall, without parts on nodes", f"{asyncio.get_running_loop().time() - started:.1f} s")
        assert pods.ended[-2:] == ["operator --uninstall --keep-crds: 0", "operator --uninstall: 0"]

    await _until_settled(cluster)
    assert await _everything(cluster) == before
    assert pod_security.LABELS.keys().isdisjoint(await _labels(cluster))


async def test_every_component_can_be_made_with_the_rights_of_the_chart(
    cluster: Cluster, helm: Helm, pods: Pods
) -> None:
    """In each way to place pods, and each way to look at new ones: nothing is refused."""
    mark = cluster.audit.mark()
    await charts.install(helm, "--set", ON)
    async with pods.deployment(OPERATOR), pods.running():
        for ways in (
            "scheduler.mode=extender,admission.mode=webhook",
            "admission.nvidiaGpu=leave,admission.unasked=void",
        ):
            await _until_made(cluster)
            await _upgrade(helm, f"{ON},{ways}")
        await _until_made(cluster)
        asked = _asked_by(cluster, mark, OPERATOR)
        await helm.run("uninstall", RELEASE, "--namespace", NAMESPACE)
    for account in ("gpushare-upgrade-crds", "gpushare-uninstall"):
        asked += _asked_by(cluster, mark, account)
    assert [one for one in asked if one.response_status.code == FORBIDDEN] == []
    assert {one.kind for one in asked} > {"daemonsets", "deployments", "clusterroles", "customresourcedefinitions"}


async def test_the_policy_is_as_the_values_say(cluster: Cluster, helm: Helm) -> None:
    """And what the values do not say, the API server adds."""
    async with _installed(cluster, helm, "--set", "sharing.sell=gpus,nfd.enabled=false"):
        spec = await _spec(cluster)
        assert (spec["sharing"]["sell"], spec["finder"]["enabled"]) == ("gpus", False)
        assert spec["driver"]["enabled"] is False
        assert spec["daemonsets"]["tolerations"] == [
            {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
        ]
        assert "create" not in spec["devicePlugin"].get("config", {})


async def test_a_second_release_is_refused(cluster: Cluster, helm: Helm) -> None:
    """Two operators would work against each other."""
    async with _installed(cluster, helm):
        with pytest.raises(Failed, match="exists and cannot be imported into the current release"):
            await helm.run("install", "another", CHART, "--namespace", "default")


async def test_its_own_pods_run_where_nothing_is_allowed(cluster: Cluster, helm: Helm) -> None:
    """The operator, the Jobs and the test need no rights on their node: only parts on nodes do."""
    await cluster.kubectl("create", "namespace", NAMESPACE)
    await cluster.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
    specs = {one["metadata"]["name"]: _pod_spec(one) for one in helm.template() if _pod_spec(one)}
    assert set(specs) == {OPERATOR, "gpushare-upgrade-crds", "gpushare-uninstall", "gpushare-delete-crds",
                          "gpushare-test"}  # fmt: skip
    for name, spec in specs.items():
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}
        await cluster.kubectl("create", "serviceaccount", spec["serviceAccountName"], "--namespace", NAMESPACE,
                              "--dry-run=server")  # fmt: skip
        spec.pop("serviceAccountName")
        await cluster.kubectl("create", "--dry-run=server", "-f", "-", given=json.dumps(pod))


async def test_a_label_for_pod_security_that_somebody_else_wrote_stays(
    cluster: Cluster, helm: Helm, pods: Pods
) -> None:
    enforce = "pod-security.kubernetes.io/enforce"
    await cluster.kubectl("create", "namespace", NAMESPACE)
    await cluster.kubectl("label", "namespace", NAMESPACE, f"{enforce}=restricted")
    await charts.install(helm)
    async with pods.deployment(OPERATOR) as operator, pods.running():
        await wait.eventually(lambda: "labelled the namespace" in operator.tail(200), "its warning", PATIENCE)
        assert (await _labels(cluster))[enforce] == "restricted"
        await helm.run("uninstall", RELEASE, "--namespace", NAMESPACE)
    assert (await _labels(cluster))[enforce] == "restricted"


async def test_an_uninstall_leaves_the_crd_where_it_shall(cluster: Cluster, helm: Helm, pods: Pods) -> None:
    await charts.install(helm, "--set", "operator.cleanupCRD=false,psa.enabled=false")
    async with pods.deployment(OPERATOR), pods.running():
        await helm.run("uninstall", RELEASE, "--namespace", NAMESPACE)
    assert pods.ended == ["operator --uninstall --keep-crds: 0"]
    await cluster.get(CRD)
    await cluster.kubectl("delete", "crd", "clusterpolicies.gpushare.io")


async def test_a_test_says_what_the_policy_lacks(cluster: Cluster, helm: Helm, pods: Pods) -> None:
    """Here nobody runs the parts."""
    await charts.install(helm)
    async with pods.deployment(OPERATOR), pods.running():
        node = {"metadata": {"name": "gpu-a", "labels": {"nvidia.com/gpu.present": "true"}}}
        await cluster.call("POST", "/api/v1/nodes", node)
        with pytest.raises(Failed, match="pod gpushare-test failed"):
            await helm.run("test", RELEASE, "--namespace", NAMESPACE)
        assert pods.ended == ["validate: 1"]
        await cluster.kubectl("delete", "node", "gpu-a")
        await helm.run("uninstall", RELEASE, "--namespace", NAMESPACE)


async def test_a_hook_that_fails_shows_why_and_is_gone(cluster: Cluster, helm: Helm, pods: Pods) -> None:
    """Here somebody else has to do something before the policy can go."""
    async with _installed(cluster, helm):
        body = {"metadata": {"finalizers": ["example.com/others"]}}
        await cluster.kubectl("patch", "clusterpolicy", "cluster-policy", "--type=merge", "--patch", json.dumps(body))
        async with pods.running():
            with pytest.raises(Failed, match="timed out"):
                await helm.run("uninstall", RELEASE, "--namespace", NAMESPACE, "--timeout=5s")
        body["metadata"]["finalizers"] = []
        await cluster.kubectl("patch", "clusterpolicy", "cluster-policy", "--type=merge", "--patch", json.dumps(body))
    left = await cluster.kubectl("get", "jobs,serviceaccounts", "--namespace", NAMESPACE, "-o", "name")
    assert left.split() == ["serviceaccount/default"]


async def test_an_uninstall_without_an_operator_does_its_work(cluster: Cluster, helm: Helm, pods: Pods) -> None:
    """It was killed after it had made everything, and does not come back."""
    await cluster.kubectl("create", "namespace", NAMESPACE)  # else what Kubernetes makes in it would be new
    await _until_settled(cluster)
    before = await _everything(cluster)
    await charts.install(helm, "--set", ON)
    async with pods.running():
        async with pods.deployment(OPERATOR):
            await _until_made(cluster)
        await helm.run("uninstall", RELEASE, "--namespace", NAMESPACE)
    await _until_settled(cluster)
    assert await _everything(cluster) == before
    assert pod_security.LABELS.keys().isdisjoint(await _labels(cluster))


@contextlib.asynccontextmanager
async def _installed(cluster: Cluster, helm: Helm, *words: str) -> AsyncIterator[None]:
    """And taken away without the help of an operator: it did nothing."""
    await charts.install(helm, *words)
    try:
        yield
    finally:
        await helm.run("uninstall", RELEASE, "--namespace", NAMESPACE, "--no-hooks", "--ignore-not-found", "--wait")
        await cluster.kubectl("delete", "crd", "clusterpolicies.gpushare.io")


def _asked_by(cluster: Cluster, mark: int, account: str) -> list[audit.Request]:
    user = f"system:serviceaccount:{NAMESPACE}:{account}"
    return [one for one in cluster.audit.since(mark) if one.user.username == user]


def _older(folder: Path) -> Path:
    """The chart before it knew one of the components."""
    chart = folder / "older"
    shutil.copytree(CHART, chart)
    crd = yaml.safe_load((chart / "crds" / "clusterpolicies.yaml").read_text())
    (version,) = crd["spec"]["versions"]
    del version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"][NEW]
    (chart / "crds" / "clusterpolicies.yaml").write_text(json.dumps(crd))
    values = yaml.safe_load((chart / "values.yaml").read_text())
    del values[NEW]
    (chart / "values.yaml").write_text(json.dumps(values))
    return chart


def _pod_spec(document: Object) -> Object:
    """Empty: it has no pods."""
    spec: Object = document.get("spec", {})
    return dict(spec) if document["kind"] == "Pod" else dict(spec.get("template", {}).get("spec", {}))


async def _spec(cluster: Cluster) -> Object:
    return dict((await cluster.get(POLICY))["spec"])


async def _labels(cluster: Cluster) -> dict[str, str]:
    return dict((await cluster.get(NAMESPACES))["metadata"].get("labels", {}))


async def _upgrade(helm: Helm, settings: str) -> None:
    await helm.run("upgrade", RELEASE, CHART, "--namespace", NAMESPACE, "--set", settings)


async def _until_state(cluster: Cluster, state: str) -> None:
    async def is_so() -> bool:
        return bool((await cluster.get(POLICY)).get("status", {}).get("state") == state)

    await wait.eventually_asked(is_so, f"the policy is {state}", PATIENCE)


async def _until_made(cluster: Cluster) -> None:
    """The operator has done all that the policy asks for now, as far as it is the operator's to do."""

    async def made() -> bool:
        policy = await cluster.get(POLICY)
        status = policy.get("status", {})
        reasons = [one["reason"] for one in status.get("conditions", ())]
        return bool(
            status.get("observedGeneration") == policy["metadata"]["generation"] and "ReconcileFailed" not in reasons
        )

    await wait.eventually_asked(made, "what the policy asks for", PATIENCE)


async def _everything(cluster: Cluster) -> set[str]:
    return {line async for line in snapshot.objects(cluster) if not line.startswith(NOT_OURS)}


async def _until_settled(cluster: Cluster) -> None:
    """Namespaces and accounts come and go a moment after the rest."""
    last: set[str] = set()

    async def settled() -> bool:
        nonlocal last
        before, last = last, await _everything(cluster)
        return last == before

    await wait.eventually_asked(settled, "an end of changes", PATIENCE, every=1.0)
