"""A cluster in memory and an operator's passes over it. What is written is seen before the next pass, as by watches."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from gpushare.core.facts import names
from gpushare.kube import client, resources
from gpushare.kube.events import Recorder
from gpushare.kube.resources import Resource
from gpushare.operator.desired.component import Cluster, Component, Manifests
from gpushare.operator.desired.policy import Spec
from gpushare.operator.managed import Node
from gpushare.operator.metrics import Figures
from gpushare.operator.reconcile import Config, Reconciler, Unseen
from gpushare.operator.seeing import watches
from gpushare.operator.seeing.kinds import KINDS
from gpushare.operator.seeing.models import Live, Pod, Policy
from tests.support.applied_api import AppliedApi

Object = dict[str, Any]

Build = Callable[[Spec, Cluster, Manifests], Sequence[Component]]

NS = "gpu-operator"
CLUSTER = Cluster(NS, (1, 36), "v1.36.4", "gpushare:1")
POLICY = "cluster-policy"
DAEMON_SETS = Resource("apps", "v1", "daemonsets")


def daemon_set(name: str, image: str = "gpushare:1") -> Object:
    pod = {"spec": {"containers": [{"name": "main", "image": image}]}}
    return {
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name, "namespace": NS},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": pod},
    }  # fmt: skip


def account(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": NS}}


def build(spec: Spec, cluster: Cluster, manifests: Manifests) -> tuple[Component, ...]:
    """Two components, one of which can be switched off, and one that never can be served."""
    mps = (account("gpushare-mps"), daemon_set("gpushare-mps"))
    image = f"gpushare:{spec.device_plugin.version or 1}"
    return (
        Component("node-part", (account("gpushare-node"), daemon_set("gpushare-node", image))),
        Component("mps", mps if spec.mps.enabled else (), enabled=spec.mps.enabled),
        Component("dashboard", unserved="there is none" if spec.dashboard.enabled else "", enabled=False),
    )


class Operated:
    def __init__(self, build: Build = build, manifests: Manifests = lambda name: []) -> None:
        self._build, self._manifests = build, manifests
        self.api, self.figures, self.leads, self.wakes = AppliedApi(), Figures(), True, 0
        self.seen = watches.seen(self._wake)
        self.recorder = Recorder(cast(client.Api, self.api))
        self.events: list[tuple[str, str]] = []
        self.recorder.record = self._record  # type: ignore[method-assign]
        self.replace()

    def replace(self) -> None:
        """Another process: it knows only what the cluster has."""
        config = Config(NS, "gpushare:1", (), self._build, self._manifests)
        self.reconciler = Reconciler(
            config, cast(client.Api, self.api), self.seen, self.recorder, self.figures, lambda: self.leads
        )

    def _wake(self) -> None:
        self.wakes += 1

    def _record(self, **event: Any) -> None:
        self.events.append((event["reason"], event["message"]))

    # What is there

    def policy(self, name: str = POLICY, *, made: str = "2026-11-17T20:00:00Z", **spec: Any) -> None:
        metadata = {"name": name, "uid": f"uid-{name}", "creationTimestamp": made, "generation": 1}
        self.api.put(resources.CLUSTER_POLICIES.item("", name), {"metadata": metadata, "spec": spec})

    def change(self, **spec: Any) -> None:
        found = self.shown()
        generation = found["metadata"]["generation"] + 1
        self.api.put(
            resources.CLUSTER_POLICIES.item("", POLICY),
            {**found, "spec": spec, "metadata": {**found["metadata"], "generation": generation}},
        )

    def delete(self, name: str = POLICY) -> None:
        """As the API server does with one that has finalizers."""
        path = resources.CLUSTER_POLICIES.item("", name)
        found = self.api.objects[path]
        if not found["metadata"].get("finalizers"):
            del self.api.objects[path]
            return
        self.api.put(path, {**found, "metadata": {**found["metadata"], "deletionTimestamp": "2026-11-17T21:00:00Z"}})

    def node(self, name: str, **labels: str) -> None:
        known = {names.PCI_LABELS[0]: "true", **labels}
        self.api.put(resources.NODES.item("", name), {"metadata": {"name": name, "labels": known}})

    def pod(self, name: str, component: str = "node-part", **metadata: Any) -> None:
        labels = {names.PART_OF: component, names.MANAGED_BY[0]: names.MANAGED_BY[1]}
        found = {"metadata": {"name": name, "namespace": NS, "labels": labels, **metadata}, "spec": {"nodeName": "a"}}
        self.api.put(resources.PODS.item(NS, name), found)

    def shown(self, name: str = POLICY) -> Object:
        return self.api.objects[resources.CLUSTER_POLICIES.item("", name)]

    def status(self, name: str = POLICY) -> Object:
        found: Object = self.shown(name).get("status") or {}
        return found

    def message(self, name: str = POLICY) -> str:
        return str(self.status(name)["conditions"][0]["message"])

    def labels(self, node: str) -> dict[str, str]:
        found: dict[str, str] = self.api.objects[resources.NODES.item("", node)]["metadata"]["labels"]
        return found

    def has(self, name: str) -> bool:
        return DAEMON_SETS.item(NS, name) in self.api.objects

    # What happens

    def see(self) -> None:
        """What watches show."""
        self._feed(resources.CLUSTER_POLICIES, Policy, self.seen.policies)
        self._feed(resources.NODES, Node, self.seen.nodes)
        self._feed(resources.PODS, Pod, self.seen.pods, NS, uid=True)
        for kind in KINDS:
            namespace = NS if kind.resource.namespaced else ""
            self._feed(kind.resource, Live, self.seen.owned.of(kind.name, namespace), namespace, ours=True)

    async def passes(self, *unseen: Any, see: bool = True) -> bool:
        """One pass over what is seen. `see`: all of it anew."""
        if see:
            self.see()
        return await self.reconciler.run(CLUSTER, cast(Unseen, unseen))

    async def settle(self) -> int:
        """Until a pass writes nothing; returns how many did."""
        for count in range(20):
            before = len(self.api.writes)
            await self.passes()
            if len(self.api.writes) == before:
                return count
        raise AssertionError("it does not come to an end")

    def _feed(
        self,
        resource: Resource,
        kind: type[Any],
        sink: Any,
        namespace: str = "",
        *,
        uid: bool = False,
        ours: bool = False,
    ) -> None:
        start = resource.collection(namespace) + "/"
        found = [one for path, one in self.api.objects.items() if path.startswith(start)]
        if ours:
            key, value = names.MANAGED_BY
            found = [one for one in found if (one["metadata"].get("labels") or {}).get(key) == value]
        for one in found:
            sink.upsert(msgspec.convert(one, kind))
        sink.relisted({one["metadata"]["uid" if uid else "name"] for one in found})
