"""`gpushare operator` as a process on the control plane, with exactly the rights that its chart gives it.

There is no kubelet here: nodes are objects, and pods of DaemonSets wait. So what is tested is what the operator writes,
and when. The rights that other tests' components have in this cluster have the same names as the operator's; they are
taken away meanwhile.
"""

import asyncio
import contextlib
import copy
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml

from gpushare.core.facts import names
from tests.e2e.harness import shipped, snapshot
from tests.e2e.harness.cluster import ADMIN, URL, Cluster
from tests.e2e.harness.processes import Process
from tests.support import wait
from tests.support.objects import Object
from tools import chart_rights, render_chart

NAMESPACE: Final = "gpu-operator"
ACCOUNT: Final = "gpushare-operator"
IMAGE: Final = "registry.example/gpushare:1"
POLICY: Final = "cluster-policy"
RBAC: Final = "rbac.authorization.k8s.io"
CRD: Final = "clusterpolicies.gpushare.io"
LEASE: Final = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/gpushare-operator"
JOB: Final = "gpushare-job"
POLICIES: Final = "/apis/gpushare.io/v1alpha1/clusterpolicies"
DAEMON_SETS: Final = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
GPU: Final = {names.PCI_LABELS[0]: "true"}
RIGHTS: Final = Path(__file__).parents[1] / "data" / "operator-rights.yaml"
OF_CONTROLLERS: Final = (
    "deprecated.daemonset.template.generation",
    "deployment.kubernetes.io/revision",
    "node.alpha.kubernetes.io/ttl",  # follows the number of nodes, a while later
)
PASSING: Final = ("leases ", "pods ", "controllerrevisions ", "replicasets ", "nodes ", "csinodes ", "clusterpolicies ")
QUICK: Final = 60.0  # seconds for what takes less than 5 on a machine with nothing else to do


class Operating:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._ports = iter(range(12400, 13400))

    # Before and after

    async def prepare(self) -> None:
        rights = _rights()
        await self.cluster.kubectl("create", "namespace", NAMESPACE)
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _named(ACCOUNT, NAMESPACE)}
        await self.cluster.apply(account)
        await self.grant(rights)
        await self.once("--install-crds")

    async def grant(self, rights: dict[str, list[Object]]) -> None:
        """To the operator's account; replaces what it had."""
        for where, rules in rights.items():
            kind = "Role" if where else "ClusterRole"
            role = {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": _named(ACCOUNT, where), "rules": rules}
            binding = {
                "apiVersion": f"{RBAC}/v1", "kind": f"{kind}Binding", "metadata": _named(ACCOUNT, where),
                "roleRef": {"apiGroup": RBAC, "kind": kind, "name": ACCOUNT},
                "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
            }  # fmt: skip
            await self.cluster.apply(role, binding)

    async def remove(self) -> None:
        for where in ("default", "kube-system"):
            await self.cluster.kubectl("delete", "role,rolebinding", ACCOUNT, "-n", where, "--ignore-not-found")
        await self.cluster.kubectl("delete", "clusterrole,clusterrolebinding", ACCOUNT, "--ignore-not-found")
        await self.cluster.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found")

    # The process

    async def once(self, *words: str, config: Path | None = None) -> None:
        """As the chart's jobs do."""
        config = config or self.cluster.kubeconfig(ADMIN, self.cluster.tokens[ADMIN])
        process = self.cluster.processes.start(
            "operator-once", Path(sys.executable).parent / "gpushare", "operator", *words, "--kubeconfig", config
        )
        await asyncio.to_thread(process.popen.wait, 300)
        assert process.popen.returncode == 0, process.tail()
        await self.cluster.processes.end(process)

    async def as_job(self, rights: str, *words: str) -> None:
        """The same with the rights of a job."""
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _named(JOB, NAMESPACE)}
        rules = yaml.safe_load(RIGHTS.read_text())[rights]
        role = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": JOB}, "rules": rules}
        binding = {
            "apiVersion": f"{RBAC}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": JOB},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": JOB},
            "subjects": [{"kind": "ServiceAccount", "name": JOB, "namespace": NAMESPACE}],
        }  # fmt: skip
        await self.cluster.apply(account, role, binding)
        try:
            await self.once(*words, config=await self.cluster.account_kubeconfig(NAMESPACE, JOB))
        finally:
            await self.cluster.kubectl("delete", "clusterrole,clusterrolebinding", JOB)
            await self.cluster.kubectl("delete", "serviceaccount", JOB, "-n", NAMESPACE)

    async def start(self, name: str = "operator") -> Process:
        config = await self.cluster.account_kubeconfig(NAMESPACE, ACCOUNT)
        environment = {**os.environ, "POD_NAMESPACE": NAMESPACE, "OPERAND_IMAGE": IMAGE, "POD_NAME": name}
        return self.cluster.processes.start(
            name, Path(sys.executable).parent / "gpushare", "operator", "--listen", "127.0.0.1",
            "--port", str(next(self._ports)), "--kubeconfig", config, environment=environment,
        )  # fmt: skip

    async def end(self, process: Process, how: signal.Signals = signal.SIGTERM) -> int:
        return await self.cluster.processes.end(process, how)

    @contextlib.asynccontextmanager
    async def running(self, name: str = "operator") -> AsyncIterator[Process]:
        process = await self.start(name)
        try:
            yield process
            process.check()
        finally:
            await self.end(process)

    # The policy

    async def policy(self, name: str = POLICY, **spec: Any) -> None:
        body = {"apiVersion": "gpushare.io/v1alpha1", "kind": "ClusterPolicy", "metadata": {"name": name}, "spec": spec}
        await self.cluster.call("POST", POLICIES, body)

    async def change(self, **spec: Any) -> None:
        await self.cluster.kubectl("patch", "clusterpolicy", POLICY, "--type=merge", "-p", json.dumps({"spec": spec}))

    async def delete(self, name: str = POLICY) -> None:
        await self.cluster.kubectl("delete", "clusterpolicy", name, "--wait=false", "--ignore-not-found")

    async def status(self, name: str = POLICY) -> Object:
        found = await self.find(f"{POLICIES}/{name}")
        return (found or {}).get("status") or {}

    async def message(self, name: str = POLICY) -> str:
        return next((one["message"] for one in (await self.status(name)).get("conditions", ())), "")

    async def component(self, name: str) -> Object:
        return next((one for one in (await self.status()).get("components", ()) if one["name"] == name), {})

    # The cluster

    async def find(self, path: str) -> Object | None:
        try:
            found: Object = await self.cluster.get(path)
        except aiohttp.ClientResponseError as error:
            if error.status == 404:
                return None
            raise
        return found

    async def node(self, name: str, **labels: str) -> None:
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {**GPU, **labels}}}
        await self.cluster.call("POST", "/api/v1/nodes", body)

    async def labels(self, name: str) -> dict[str, str]:
        found = await self.cluster.get(f"/api/v1/nodes/{name}")
        labels: dict[str, str] = found["metadata"].get("labels", {})
        return labels

    async def nodes(self, called: list[str]) -> None:
        """Many at once, with GPUs."""
        body = {"apiVersion": "v1", "kind": "Node"}
        await self._many("POST", [("", {**body, "metadata": {"name": name, "labels": GPU}}) for name in called])

    async def remove_nodes(self, prefix: str = "") -> None:
        listed = (await self.cluster.get("/api/v1/nodes"))["items"]
        names_of = [one["metadata"]["name"] for one in listed]
        await self._many("DELETE", [(f"/{name}", None) for name in names_of if name.startswith(prefix)])

    @contextlib.asynccontextmanager
    async def with_gpu_node(self, name: str) -> AsyncIterator[None]:
        """With one GPU node. At the end nothing is left, or the test fails."""
        await self.node(name)
        before = await self.snapshot()
        try:
            yield
            async with self.running("operator-last"):
                for policy in await self.policies():
                    await self.delete(policy)
                await self.gone()
            assert await self.snapshot() == before
        finally:
            await self.remove_nodes()

    async def _many(self, method: str, requests: list[tuple[str, Object | None]]) -> None:
        limit, trust = asyncio.Semaphore(20), self.cluster.trust()
        headers = {"Authorization": f"Bearer {self.cluster.tokens[ADMIN]}"}
        async with aiohttp.ClientSession(f"{URL}", headers=headers, raise_for_status=True) as session:

            async def one(path: str, body: Object | None) -> None:
                async with limit, session.request(method, f"/api/v1/nodes{path}", json=body, ssl=trust):
                    pass

            await asyncio.gather(*(one(*request) for request in requests))

    async def made(self, component: str = "") -> set[str]:
        """Names of all that the operator made."""
        selector = "=".join(names.MANAGED_BY) + (f",{names.PART_OF}={component}" if component else "")
        listed = await self.cluster.kubectl("get", ",".join(sorted(_KINDS)), "-A", "-o", "name", "-l", selector)
        return set(listed.split())

    async def contents(self) -> list[str]:
        """All that it made and all nodes, without what is different each time."""
        found = []
        for kinds, words in ((",".join(sorted(_KINDS)), ("-A", "-l", "=".join(names.MANAGED_BY))), ("nodes", ())):
            listed = json.loads(await self.cluster.kubectl("get", kinds, *words, "-o", "json"))
            found += [json.dumps(_lasting(one), sort_keys=True) for one in listed["items"]]
        return sorted(found)

    async def snapshot(self) -> list[str]:
        """Names of all objects, and what nodes have."""
        made = {line async for line in snapshot.objects(self.cluster) if not line.startswith(PASSING)}
        nodes = [line for line in await self.contents() if '"kind": "Node"' in line]
        return sorted(made) + nodes

    async def policies(self) -> list[str]:
        return [one["metadata"]["name"] for one in (await self.cluster.get(POLICIES))["items"]]

    async def forget_lease(self) -> None:
        await self.cluster.kubectl("-n", NAMESPACE, "delete", "lease", "gpushare-operator", "--ignore-not-found")

    async def until(self, what: str, condition: Callable[[], Awaitable[Any]], seconds: float = QUICK) -> float:
        """How many seconds it took."""
        begun = time.monotonic()
        await wait.eventually_asked(condition, what, seconds, every=0.05)
        return time.monotonic() - begun

    async def gone(self) -> None:
        """The policy, with all that was of it."""

        async def are_gone() -> bool:
            return not await self.policies()

        await self.until("policies are gone", are_gone)


_KINDS: Final = frozenset(
    {
        "daemonsets", "deployments", "configmaps", "secrets", "services", "serviceaccounts", "roles", "rolebindings",
        "clusterroles", "clusterrolebindings", "runtimeclasses", "customresourcedefinitions", "poddisruptionbudgets",
        "mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "validatingadmissionpolicies",
        "validatingadmissionpolicybindings", "mutatingwebhookconfigurations", "validatingwebhookconfigurations",
    }
)  # fmt: skip


@contextlib.asynccontextmanager
async def prepared(cluster: Cluster) -> AsyncIterator[Operating]:
    """An operator that may be started, in a cluster that has nothing else of gpushare."""
    others = shipped.rights()
    given = yaml.safe_dump_all(others)
    await cluster.kubectl("delete", "-f", "-", "--ignore-not-found", given=given)
    made = Operating(cluster)
    try:
        await made.prepare()
        yield made
    finally:
        await made.remove()
        await cluster.apply(*others)


def rights() -> dict[str, list[Object]]:
    return copy.deepcopy(_rights())


def _rights() -> dict[str, list[Object]]:
    """Those of the chart, by namespace; "" is the whole cluster."""
    places = {chart_rights.CLUSTER: "", chart_rights.OWN: NAMESPACE, chart_rights.SYSTEM: "kube-system"}
    return {places[where]: chart_rights.rules(found) for where, found in render_chart.rights().items()}


def _named(name: str, namespace: str) -> Object:
    return {"name": name, "namespace": namespace} if namespace else {"name": name}


def _lasting(found: Object) -> Object:
    """What a second run makes again exactly so."""
    metadata = found["metadata"]
    kept = {key: metadata[key] for key in ("name", "namespace", "labels", "annotations") if metadata.get(key)}
    annotations = dict(kept.pop("annotations", {}))
    for key in (*OF_CONTROLLERS, names.WANTED):  # the digest has the uid of the policy in it
        annotations.pop(key, None)
    content = {key: value for key, value in found.items() if key not in ("metadata", "status")}
    if found["kind"] == "Node":
        content["spec"] = [one for one in found["spec"].get("taints", ()) if "node.kubernetes.io" not in one["key"]]
    if found["kind"] == "ServiceAccount":
        content.pop("secrets", None)
    return {**content, "metadata": {**kept, **({"annotations": annotations} if annotations else {})}}
