"""What all components have in common: their manifest in the operator's namespace, and what a policy says about pods.

Functions change the object they are given: a manifest is made anew for each call.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from gpushare.core.facts import names
from gpushare.operator.desired import images, namespaces
from gpushare.operator.desired.component import Cluster, Component, Manifests, Object
from gpushare.operator.desired.policy import DaemonSets, Image, Part, Spec

KUBELET: Final = "/var/lib/kubelet"
DRIVER: Final = "/run/nvidia/driver"
VALIDATIONS: Final = "validations"
CONTROL_PLANE: Final = tuple(
    {"key": f"node-role.kubernetes.io/{role}", "operator": "Exists", "effect": "NoSchedule"}
    for role in ("control-plane", "master")
)
RUN_AS: Final = 65532  # the user of gpushare's image
WAITING: Final = {"cpu": "5m", "memory": "32Mi"}  # what an init container asks for


def documents(manifests: Manifests, file: str, cluster: Cluster) -> list[Object]:
    """A file of deploy/, in the operator's namespace."""
    return [namespaces.moved(document, cluster.namespace) for document in manifests(file)]


def of_kind(objects: Iterable[Object], *kinds: str) -> list[Object]:
    return [one for one in objects if one["kind"] in kinds]


def pod(workload: Object) -> Object:
    """The pod of a DaemonSet or Deployment."""
    spec: Object = workload["spec"]["template"]["spec"]
    return spec


def container(workload: Object, called: str = "") -> Object:
    """By its name, or the first one."""
    found: Object = next(one for one in pod(workload)["containers"] if called in ("", one["name"]))
    return found


def failing(name: str, part: Image, field: str) -> Component | None:
    """The component, if its image cannot be told; None: it can."""
    problem = images.problem(part, field)
    return Component(name, unserved=problem) if problem else None


def on_nodes(workload: Object, spec: Spec, part: Part, cluster: Cluster, *, default: str = "") -> None:
    """What a policy says about a DaemonSet. `default`: its image, if it is not gpushare's own."""
    every_workload(workload, part, cluster, default=default)
    common = spec.daemonsets
    template = workload["spec"]["template"]["metadata"]
    template["labels"] = {**common.labels, **template["labels"]}  # ours win: the selector needs them
    if common.annotations:
        template["annotations"] = {**common.annotations, **template.get("annotations", {})}
    inside = pod(workload)
    inside["tolerations"] = _tolerations(common)
    inside["priorityClassName"] = common.priority_class_name
    if not common.priority_class_name:
        del inside["priorityClassName"]
    _host_paths(inside, spec)


def also_on_tainted(workload: Object, spec: Spec) -> None:
    """A Deployment may go to control planes and to GPU nodes: a small cluster has no other machines."""
    own = pod(workload).get("tolerations", [])
    more = [*CONTROL_PLANE, *_tolerations(spec.daemonsets)]
    pod(workload)["tolerations"] = [*own, *(dict(one) for one in more if one not in own)]


def _tolerations(common: DaemonSets) -> list[Object]:
    """Those of the policy, and of the taint that the policy itself puts on GPU nodes."""
    said = [dict(toleration) for toleration in common.tolerations]
    key, _, effect = names.GPU_TAINT
    own = {"key": key, "operator": "Exists", "effect": effect}
    return [*said, own] if common.taint and own not in said else said


def every_workload(workload: Object, part: Part, cluster: Cluster, *, default: str = "", called: str = "") -> None:
    """The same for a Deployment. `called`: the container that is meant; else the first."""
    main = container(workload, called)
    main["image"] = images.name(part, default or cluster.image)
    main["imagePullPolicy"] = part.image_pull_policy
    if part.resources:
        main["resources"] = dict(part.resources)
    add_env(main, part.env)
    add_args(main, part.args)
    main["terminationMessagePolicy"] = "FallbackToLogsOnError"  # its last words come into the policy's status
    pull_secrets(workload, cluster, part)


def pull_secrets(workload: Object, cluster: Cluster, part: Image) -> None:
    """Beside those that the pod has already."""
    there = [one["name"] for one in pod(workload).get("imagePullSecrets", [])]
    wanted = dict.fromkeys([*there, *cluster.pull_secrets, *part.image_pull_secrets])
    if wanted:
        pod(workload)["imagePullSecrets"] = [{"name": name} for name in wanted]


def add_env(main: Object, variables: Iterable[Object]) -> None:
    """A variable that is there already gets the new value."""
    wanted = {one["name"]: dict(one) for one in variables}
    kept = [wanted.pop(one["name"], one) for one in main.get("env", [])]
    if kept or wanted:
        main["env"] = [*kept, *wanted.values()]


def add_args(main: Object, words: Sequence[str]) -> None:
    if words:
        main["args"] = [*main.get("args", []), *words]


def rolling(workload: Object, common: DaemonSets) -> None:
    """How a change of the policy reaches running pods. Not for a DaemonSet whose manifest says OnDelete."""
    if common.update_strategy == "OnDelete":
        workload["spec"]["updateStrategy"] = {"type": "OnDelete"}
        return
    most = common.rolling_update.max_unavailable
    rolling = {"maxUnavailable": int(most) if most.isdecimal() else most}
    workload["spec"]["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": rolling}


def select(workload: Object, **labels: str) -> None:
    """Only nodes with these labels; a name of NVIDIA's operator stands for its label."""
    selected = {f"{names.DEPLOY_PREFIX}{key.replace('_', '-')}": value for key, value in labels.items()}
    pod(workload)["nodeSelector"] = {**pod(workload).get("nodeSelector", {}), **selected}


def runtime_class(workload: Object, spec: Spec) -> None:
    """The runtime that brings the driver into the container."""
    if spec.operator.runtime_class:
        pod(workload)["runtimeClassName"] = spec.operator.runtime_class


def wait_for(workload: Object, spec: Spec, cluster: Cluster, *checks: str) -> None:
    """An init container that waits until the validator has seen these work on the node. Without a validator nobody
    says so, and nothing waits."""
    if not spec.validator.enabled:
        return
    inside = pod(workload)
    mount = {"name": VALIDATIONS, "mountPath": names.VALIDATIONS_FOLDER, "readOnly": True}
    waiting = {
        "name": "-".join(("wait-for", *checks)),
        "image": images.name(spec.validator, cluster.image),
        "imagePullPolicy": spec.validator.image_pull_policy,
        "args": ["validate", f"--wait-for={','.join(checks)}"],
        "env": [
            {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
            for name, path in (("NODE_NAME", "spec.nodeName"), ("POD_NAME", "metadata.name"))  # who waits, and where
        ],
        "resources": {"requests": dict(WAITING)},
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": RUN_AS,
            "runAsGroup": RUN_AS,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [mount],
    }
    pull_secrets(workload, cluster, spec.validator)
    inside["initContainers"] = [waiting, *inside.get("initContainers", [])]
    if VALIDATIONS not in (volume["name"] for volume in inside.get("volumes", [])):
        add_host_path(inside, VALIDATIONS, names.VALIDATIONS_FOLDER)


def add_host_path(inside: Object, name: str, path: str) -> None:
    """A folder of the node, which is made if it is not there."""
    volume = {"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}}
    inside["volumes"] = [*inside.get("volumes", []), volume]


def _host_paths(inside: Object, spec: Spec) -> None:
    """Where kubelet, the driver container and the root folder are on the nodes."""
    places = {KUBELET: spec.host_paths.kubelet_root_dir, DRIVER: spec.host_paths.driver_install_dir}
    for volume in inside.get("volumes", []):
        if "hostPath" not in volume:
            continue
        path = volume["hostPath"]["path"]
        for written, wanted in places.items():
            if path == written or path.startswith(f"{written}/"):
                path = wanted + path.removeprefix(written)
        volume["hostPath"]["path"] = spec.host_paths.root_fs if path == "/" else path
