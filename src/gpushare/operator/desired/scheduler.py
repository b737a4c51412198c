"""Who places pods that ask for shares: a second kube-scheduler with the extender in its pod, or the extender alone,
which the cluster's own kube-scheduler asks."""

import re
from typing import Final

from gpushare.core.facts import names
from gpushare.operator.desired import common, images
from gpushare.operator.desired.component import Cluster, Component, Manifests, Object
from gpushare.operator.desired.policy import Spec

NAME = "scheduler"
FILES: Final = {"second": "gpu-scheduler.yaml", "extender": "extender.yaml"}
EXTENDER, KUBE_SCHEDULER = "gpushare-schd-extender", "kube-scheduler"  # containers
SINCE: Final = (1, 25)  # the configuration of the second one has a form that older ones do not know
TOO_OLD = (
    "a second kube-scheduler needs Kubernetes 1.25: set scheduler.mode to extender, and run gpushare install-scheduler "
    "on each control plane"
)
# What vendors write behind the version, such as -eks-a737599 or +k3s1, is in no public image. A pre-release is.
_RELEASE: Final = re.compile(r"v\d+\.\d+\.\d+(?:-(?:alpha|beta|rc)\.\d+)?")


def assigns(spec: Spec) -> str:
    """The scheduler that admission writes into pods that ask for shares; empty: none."""
    wanted = spec.scheduler.enabled and spec.scheduler.mode == "second" and spec.scheduler.assign_pods
    return names.GPU_SCHEDULER if wanted else ""


def build(spec: Spec, cluster: Cluster, manifests: Manifests) -> Component:
    part = spec.scheduler
    if not part.enabled:
        return Component(NAME, enabled=False)
    failing = common.failing(NAME, part, NAME)
    if part.mode == "second":
        failing = failing or common.failing(NAME, part.kube_scheduler, f"{NAME}.kubeScheduler")
        if cluster.version < SINCE:
            return Component(NAME, unserved=TOO_OLD)
    if failing:
        return failing
    objects = common.documents(manifests, FILES[part.mode], cluster)
    (workload,) = common.of_kind(objects, "Deployment")
    if part.policy:
        common.add_args(common.container(workload, EXTENDER), ["--policy", part.policy])
    common.every_workload(workload, part, cluster, called=EXTENDER)
    common.also_on_tainted(workload, spec)
    if part.mode == "second":
        _kube_scheduler(workload, spec, cluster)
        objects.append(_lease(cluster))
    return Component(NAME, tuple(objects))


def _kube_scheduler(workload: Object, spec: Spec, cluster: Cluster) -> None:
    """Of the cluster's own version: a scheduler must not be newer than its API server."""
    said = spec.scheduler.kube_scheduler
    release = _RELEASE.match(cluster.git_version)
    version = release[0] if release else "v{}.{}.0".format(*cluster.version)
    container = common.container(workload, KUBE_SCHEDULER)
    container["image"] = images.name(said, f"registry.k8s.io/kube-scheduler:{version}")
    container["imagePullPolicy"] = said.image_pull_policy
    common.pull_secrets(workload, cluster, said)


def _lease(cluster: Cluster) -> Object:
    """Of the second kube-scheduler, which would make it itself, and leave it behind."""
    metadata = {"name": names.GPU_SCHEDULER, "namespace": cluster.namespace, "labels": {"app": "gpushare"}}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
