"""A cluster in a few words for tests of `why`, and a source that answers as its API server would.

Words of `tests.support.objects`, and those that only `why` looks at: taints, labels, CPU, gates, waiting containers.
"""

import copy
import json
from collections.abc import Iterable
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from gpushare.core.admission import containers, pinning, scheduler_name
from gpushare.core.facts import names
from gpushare.ctl.screen import Screen
from gpushare.ctl.why import command
from gpushare.kube.errors import ApiError
from gpushare.obs.errors import CLUSTER_NOT_ASKED
from gpushare.view.source import Forbidden, NotFound
from gpushare.view.why.files import admission_policy
from tests.support import objects, yaml_text
from tests.support.objects import Object

HERE = Path(__file__).parent
DEPLOY = HERE.parents[2] / "deploy"
SHIPPED, OF_SCHEDULERS = (
    yaml_text.documents((DEPLOY / file).read_text()) for file in ("admission.yaml", "scheduler-name.yaml")
)
NOW = 1794745805.0  # 2026-11-15T12:30:05Z
REFUSED_AT = "2026-11-15T12:29:57Z"  # 8 s before
CREATED = "2026-11-15T12:27:55Z"  # 2m10s before
NODE_WORDS = {"labels", "taints", "cordoned", "cpu", "counted"}
POD_WORDS = {
    "gpu", "allocation", "times", "waits", "reason", "selector", "tolerations", "gates", "scheduler", "started",
    "waiting", "init_waiting", "cpu", "no_preemption", "message", "refused_at", "counted", "since",
}  # fmt: skip


class Cluster:
    """Objects by name, and `hidden`: path beginnings that this user may not read.

    `policy`: the labels of the namespaces in which gpushare's admission policy changes pods; none: there is no policy.
    `scheduler`: whom deploy/scheduler-name.yaml names; empty: it is not applied. `namespaces`: labels by name, None for
    one that does not exist; any other exists, without labels. `refuses`: the API server's no to a new pod.
    """

    def __init__(self, nodes: Object, pods: Iterable[Object]) -> None:
        self.nodes = {name: node(name, given) for name, given in nodes.items()}
        self.pods = {(p["metadata"]["namespace"], p["metadata"]["name"]): p for given in pods for p in made(given)}
        self.maps: dict[str, str] = {}
        self.gpunodes: dict[str, Object] = {}
        self.events: list[Object] = []
        self.classes: dict[str, Object] = {}
        self.hidden: tuple[str, ...] = ()
        self.policy: dict[str, str] | None = None
        self.scheduler = ""
        self.namespaces: dict[str, dict[str, str] | None] = {}
        self.refuses: ApiError | None = None
        self.asked: list[str] = []
        self.tried: list[Object] = []

    def dry_run(self, path: str, draft: bytes) -> bytes:
        self.asked.append(f"POST {path}")
        pod = json.loads(draft)
        self.tried.append(json.loads(draft))
        meta, namespace = pod["metadata"], path.split("/")[4]
        if self.hidden and f"POST {path}".startswith(self.hidden):
            words = f'User "dev" cannot create resource "pods" in API group "" in the namespace "{namespace}"'
            raise ApiError(403, "Forbidden", f"pods is forbidden: {words}")
        if self.refuses is not None:
            raise self.refuses
        if (namespace, meta.get("name")) in self.pods:
            raise ApiError(409, "AlreadyExists", f'pods "{meta["name"]}" already exists')
        for container in (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())):
            container.setdefault("resources", {})
        labels = self.namespaces.get(namespace, {})
        if labels is None:
            raise ApiError(404, "NotFound", f'namespaces "{namespace}" not found')
        if self.policy is not None and self.policy.items() <= labels.items():
            containers.add(pod, pinning.pin(pod))
        if self.scheduler and scheduler_name.assigned(pod):
            pod["spec"]["schedulerName"] = self.scheduler
        if (name := pod["spec"].get("priorityClassName")) is not None:
            if name not in self.classes:
                words = f"no PriorityClass with name {name} was found"
                raise ApiError(403, "Forbidden", f'pods "{meta.get("name")}" is forbidden: {words}')
            found = self.classes[name]
            pod["spec"] |= {"priority": found["value"], "preemptionPolicy": found.get("preemptionPolicy")}
        meta |= {"uid": "of-the-dry-run", "name": meta.get("name") or meta["generateName"] + "x7k2p"}
        return json.dumps(pod).encode()

    def get(self, path: str) -> bytes:
        self.asked.append(path)
        if path.startswith(self.hidden) if self.hidden else False:
            what = f"not allowed: list {path.rpartition('/')[2]} in all namespaces"
            raise Forbidden(what, 'user "dev" lacks verb list', "kubectl create clusterrolebinding", CLUSTER_NOT_ASKED)
        found = self._find(path)
        if found is None:
            raise NotFound(f"not there: {path}", "404", "kubectl api-resources", CLUSTER_NOT_ASKED)
        return json.dumps(found).encode()

    def namespace(self) -> str:
        return "default"

    def _find(self, path: str) -> Object | None:
        parts = urlsplit(path)
        steps = parts.path.strip("/").split("/")
        if parts.path in ("/api/v1/nodes", "/api/v1/pods"):
            return {"items": list((self.nodes if steps[-1] == "nodes" else self.pods).values())}
        if steps[-1] == "configmaps":
            return {"items": [{"metadata": {"name": k}, "data": {"gpus": v}} for k, v in self.maps.items()]}
        if "gpunodes" in steps:
            return {"items": [*self.gpunodes.values()]} if steps[-1] == "gpunodes" else self.gpunodes.get(steps[-1])
        if steps[-2] == "priorityclasses":
            return self.classes.get(steps[-1])
        if parts.path.startswith(admission_policy.GROUP):
            return self._policy(parts.path)
        if len(steps) == 4 and steps[2] == "namespaces":
            labels = self.namespaces.get(steps[3], {})
            return None if labels is None else {"metadata": {"name": steps[3], "labels": labels}}
        if steps[-1] == "events":
            uid = parse_qs(parts.query)["fieldSelector"][0].removeprefix("involvedObject.uid=")
            return {"items": [event for event in self.events if event["involvedObject"]["uid"] == uid]}
        if steps[-1] == "pods":
            return {"items": [pod for (namespace, _), pod in self.pods.items() if namespace == steps[3]]}
        return self.pods.get((steps[3], steps[5]))

    def _policy(self, path: str) -> Object | None:
        """As deploy/admission.yaml and deploy/scheduler-name.yaml have them; there is no webhook."""
        if path == admission_policy.WEBHOOK:
            return None
        if path.endswith(OF_SCHEDULERS[0]["metadata"]["name"]):
            return copy.deepcopy(OF_SCHEDULERS[0]) if self.scheduler else None
        if path == admission_policy.BINDINGS:
            return {"items": [*self._bindings(), *[OF_SCHEDULERS[1]] * bool(self.scheduler)]}
        return copy.deepcopy(SHIPPED[0]) if self.policy is not None else None

    def _bindings(self) -> list[Object]:
        if self.policy is None:
            return []
        binding = copy.deepcopy(SHIPPED[1])
        if self.policy:
            binding["spec"]["matchResources"] = {"namespaceSelector": {"matchLabels": self.policy}}
        return [binding]


def world(extra: Object | None = None) -> Cluster:
    """The world of the examples, with more pods, and nodes changed or added, as `extra` says."""
    given = yaml_text.document((HERE / "world.yaml").read_text())
    extra = extra or {}
    nodes = {name: {**given["nodes"].get(name, {}), **extra.get("nodes", {}).get(name, {})}
             for name in (*given["nodes"], *extra.get("nodes", {}))}  # fmt: skip
    changed = {name: {**pod, **extra.get("change", {}).get(name, {})} for pod in given["pods"] if (name := pod["name"])}
    nodes |= {f"cpu-{i}": {} for i in range(extra.get("cpu_nodes", 0))}
    cluster = Cluster(nodes, [*changed.values(), *extra.get("pods", [])])
    cluster.maps = extra.get("maps", {})
    cluster.events = [event(cluster, one) for one in extra.get("events", [])]
    return cluster


def node(name: str, given: Object) -> Object:
    made = objects.node(name, {key: value for key, value in given.items() if key not in NODE_WORDS})
    made["metadata"]["labels"] = given.get("labels", {})
    made["spec"] = {"unschedulable": given.get("cordoned", False), "taints": given.get("taints", [])}
    for amounts in (made["status"]["capacity"], made["status"]["allocatable"]):
        amounts |= {"cpu": str(given.get("cpu", 64)), "memory": "256Gi", "pods": "110"}
    for resource, (total, unhealthy) in given.get("counted", {}).items():  # as NVIDIA's own plugin has it
        made["status"]["allocatable"][resource] = str(total)
        made["status"]["capacity"][resource] = str(total + unhealthy)
    return made


def made(given: Object) -> list[Object]:
    if "times" in given:
        rest = {key: value for key, value in given.items() if key != "times"}
        return [pod({**rest, "name": f"{given['name']}-{i}"}) for i in range(given["times"])]
    return [pod(given)]


def pod(given: Object) -> Object:
    known = {key: value for key, value in given.items() if key not in POD_WORDS}
    objects.known(known, objects.POD_WORDS, f"pod {given.get('name')}")
    notes = dict(given.get("annotations", {}))
    if "gpu" in given:
        notes[names.ALIYUN_IDX] = str(given["gpu"])
    if "allocation" in given:
        text = {str(i): {str(gpu): units for gpu, units in held.items()} for i, held in given["allocation"].items()}
        notes[names.ALLOCATION] = json.dumps(text)
    phase = given.get("phase", "Running" if "node" in given else "Pending")
    made = objects.pod({"created": CREATED, **known, "annotations": notes, "phase": phase})
    spec, status = made["spec"], made["status"]
    spec |= {"nodeSelector": given.get("selector"), "tolerations": given.get("tolerations"),
             "schedulingGates": [{"name": gate} for gate in given.get("gates", [])],
             "schedulerName": given.get("scheduler", "default-scheduler"),
             "preemptionPolicy": "Never" if given.get("no_preemption") else None}  # fmt: skip
    if "cpu" in given:
        spec["containers"][0]["resources"].setdefault("requests", {})["cpu"] = str(given["cpu"])
    if "counted" in given:
        limits = {resource: str(amount) for resource, amount in given["counted"].items()}
        spec["containers"][0]["resources"]["limits"] = limits
    if "since" in given:
        status["startTime"] = given["since"]
    if "waits" in given:
        reason, since = given.get("reason", "Unschedulable"), given.get("refused_at", REFUSED_AT)
        status["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": reason,
                                 "message": given["waits"], "lastTransitionTime": since}]  # fmt: skip
    elif "reason" in given:
        status |= {"reason": given["reason"], "message": given.get("message")}
    for word, key in (("waiting", "containerStatuses"), ("init_waiting", "initContainerStatuses")):
        found = given.get(word, {})
        status[key] = [{"name": name, "state": {"waiting": {"reason": why}}} for name, why in found.items()]
    return made


def event(cluster: Cluster, given: Object) -> Object:
    """`{pod, reason, message, time, by}`."""
    uid = cluster.pods["default", given["pod"]]["metadata"]["uid"]
    return {"involvedObject": {"uid": uid}, "reason": given["reason"], "message": given.get("message", ""),
            "lastTimestamp": None, "eventTime": given["time"], "reportingComponent": given.get("by", "")}  # fmt: skip


class Answer:
    """What somebody sees: stdout, stderr and the exit code."""

    def __init__(self, out: str, err: str, code: int) -> None:
        self.out, self.err, self.code = out, err, code

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def ask(cluster: Cluster, pod: str = "", *, width: int | None = None, stdin: str = "", **options: Any) -> Answer:
    """`gpushare why`, as the command line would call it."""
    out, err = StringIO(), StringIO()
    screen = Screen(out, err, width=width)
    code = command.run(command.Options(pod=pod, **options), cluster, screen, now=NOW, stdin=BytesIO(stdin.encode()))
    return Answer(out.getvalue(), err.getvalue(), code)
