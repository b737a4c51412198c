"""The real kubectl, the same steps against the embedded cluster and against a real control plane.

Neither has a scheduler or a node that runs anything: where a step needs pods that run or have ended, the test says so
in their status. What kubectl shows must be the same, word for word, apart from what the embedded server says it cannot.
"""

import asyncio
import contextlib
import json
import os
import re
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpushare.devcluster.cluster import DevCluster
from tests.contracts.api import test_admission_effect
from tests.contracts.api.pod_states import CRASHED, CREATED, DONE, RUNNING, STATES, ready, state
from tests.e2e.harness import binaries, shipped
from tests.e2e.harness.cluster import ADMIN, URL, Cluster
from tests.support import api_client
from tests.support.api_client import GPU_MEM, Api, Object

EMBEDDED, REAL = "embedded", "real"
PATIENCE = 60.0  # seconds for one kubectl
WAIT = "--timeout=30s"


@dataclass
class Kubectl:
    """`await kubectl("get", "pods")`: its output, in a namespace of the test's own."""

    backend: str
    api: Api
    kubeconfig: Path
    cache: Path

    async def __call__(self, *arguments: str, given: object = None, fails: bool = False) -> str:
        """`given` is what it reads from its input. `fails`: it must, and what it complains about is the answer."""
        done = await asyncio.to_thread(
            subprocess.run, self.command(*arguments), input=_written(given), capture_output=True, text=True,
            timeout=PATIENCE, env=os.environ | {"KUBECACHEDIR": str(self.cache)}, check=False,
        )  # fmt: skip
        assert bool(done.returncode) is fails, f"{arguments}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        return str(done.stderr if fails else done.stdout)

    def command(self, *arguments: str) -> list[str]:
        program = str(binaries.program("kubectl"))
        return [program, f"--kubeconfig={self.kubeconfig}", f"--namespace={self.api.namespace}", *arguments]

    async def rows(self, *arguments: str) -> list[list[str]]:
        """A table without its header, as cells."""
        shown = await self("get", *arguments, "--no-headers")
        return [re.split(r"\s{2,}", line.strip()) for line in shown.splitlines()]

    async def json(self, *arguments: str) -> Any:
        return json.loads(await self("get", *arguments, "-o", "json"))

    async def names(self, *arguments: str) -> list[str]:
        return (await self("get", *arguments, "-o", "name")).split()

    async def say(self, pod: str, status: Object) -> None:
        """Puts words into a kubelet's mouth."""
        change = json.dumps({"status": status})
        await self("patch", "pod", pod, "--subresource=status", "--type=merge", "-p", change)


def _written(given: object) -> str | None:
    if isinstance(given, list):
        given = {"apiVersion": "v1", "kind": "List", "items": given}
    return None if given is None else json.dumps(given)


@pytest.fixture(params=[EMBEDDED, REAL])
def backend(request: pytest.FixtureRequest) -> str:
    if request.param == REAL:
        request.getfixturevalue("cluster")  # before there is an event loop
    return str(request.param)


@pytest.fixture
async def kubectl(request: pytest.FixtureRequest, backend: str, tmp_path: Path) -> AsyncIterator[Kubectl]:
    async with contextlib.AsyncExitStack() as stack:
        if backend == EMBEDDED:
            dev = await stack.enter_async_context(DevCluster(nodes=[], folder=tmp_path))
            api = await stack.enter_async_context(api_client.connect(dev.url))
            yield Kubectl(backend, api, dev.kubeconfig, tmp_path / "cache")
        else:
            cluster: Cluster = request.getfixturevalue("cluster")
            config = cluster.kubeconfig(ADMIN, cluster.tokens[ADMIN])
            api = await stack.enter_async_context(api_client.connect(URL, cluster.tokens[ADMIN], str(cluster.ca)))
            yield Kubectl(backend, api, config, cluster.work / "kubectl-cache")


# Objects


def pod(name: str, *, labels: Object | None = None, **spec: Any) -> Object:
    made = api_client.pod(name, labels=labels, **spec)
    return {"apiVersion": "v1", "kind": "Pod", **made}


def deployment(name: str = "web", replicas: int = 2, amount: str = "3500") -> Object:
    container = {"name": "main", "image": "busybox", "resources": {"limits": {GPU_MEM: amount}}}
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"schedulerName": "nobody", "containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def job(name: str = "batch", **spec: Any) -> Object:
    containers = [{"name": "main", "image": "busybox", "command": ["sleep", "5"]}]
    template = {"spec": {"restartPolicy": "Never", "schedulerName": "nobody", "containers": containers}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template, **spec}}


def config_map(name: str = "settings", **data: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


# The header of each table, with -o wide.
HEADERS = {
    "pods": "NAME READY STATUS RESTARTS AGE IP NODE NOMINATED-NODE READINESS-GATES",
    "nodes": "NAME STATUS ROLES AGE VERSION INTERNAL-IP EXTERNAL-IP OS-IMAGE KERNEL-VERSION CONTAINER-RUNTIME",
    "deployments": "NAME READY UP-TO-DATE AVAILABLE AGE CONTAINERS IMAGES SELECTOR",
    "jobs": "NAME STATUS COMPLETIONS DURATION AGE CONTAINERS IMAGES SELECTOR",
    "configmaps": "NAME DATA AGE",
    "namespaces": "NAME STATUS AGE",
    "events": "LAST-SEEN TYPE REASON OBJECT SUBOBJECT SOURCE MESSAGE FIRST-SEEN COUNT NAME",
}


# Looking


async def test_people_see_the_same_columns(kubectl: Kubectl) -> None:
    name = api_client.unique("node")
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    event = {
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "p.1"}, "reason": "Tried", "message": "said",
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": kubectl.api.namespace},
    }  # fmt: skip
    await kubectl("create", "-f", "-", given=[pod("p"), deployment(), job(), config_map(), event, node])
    try:
        for resource, header in HEADERS.items():
            shown = (await kubectl("get", resource, "-o", "wide")).splitlines()[0]
            cells = [cell.replace(" ", "-") for cell in re.split(r"\s{2,}", shown.strip())]
            assert " ".join(cells) == header, resource
            narrow = (await kubectl("get", resource)).splitlines()[0]
            assert len(narrow.split()) < len(shown.split()) or resource in ("configmaps", "namespaces")
    finally:
        await kubectl("delete", "node", name)


async def test_people_see_the_same_word_for_each_state_of_a_pod(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", given=[pod(name, **spec) for name, (spec, _, _, _) in STATES.items()])
    for name, (_, status, _, _) in STATES.items():
        if status:
            await kubectl.say(name, status)
    shown = {row[0]: (row[1], row[2]) for row in await kubectl.rows("pods")}
    assert shown == {name: (readiness, word) for name, (_, _, readiness, word) in STATES.items()}


async def test_restarts_say_how_often_and_when(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", given=pod("p"))
    again = state(restarts=4, is_ready=True, running=RUNNING) | {"lastState": {"terminated": CRASHED}}
    await kubectl.say("p", {"phase": "Running", "containerStatuses": [again]})
    ((_, _, _, restarts, _),) = await kubectl.rows("pods")
    assert re.fullmatch(r"4 \(\d+[dy]\d*d? ago\)", restarts), restarts


async def test_a_node_is_shown_with_its_state_and_addresses(kubectl: Kubectl) -> None:
    name = api_client.unique("node")
    labels = {"node-role.kubernetes.io/gpu": ""}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
    await kubectl("create", "-f", "-", given=node)
    try:
        system = {"kubeletVersion": "v1.2.3", "osImage": "Some OS", "kernelVersion": "6.1", "architecture": "amd64"}
        addresses = [{"type": "InternalIP", "address": "10.1.2.3"}, {"type": "Hostname", "address": name}]
        said = {"conditions": [ready()], "addresses": addresses, "nodeInfo": system}
        await kubectl("patch", "node", name, "--subresource=status", "-p", json.dumps({"status": said}))
        await kubectl("cordon", name)
        ((_, status, roles, _, *rest),) = await kubectl.rows("node", name, "-o", "wide")
        assert (status, roles) == ("Ready,SchedulingDisabled", "gpu")
        assert rest == ["v1.2.3", "10.1.2.3", "<none>", "Some OS", "6.1 (amd64)", "<unknown>"]
        described = await kubectl("describe", "node", name)
        assert re.search(r"Unschedulable: +true", described)
        assert re.search(r"Kubelet Version: +v1\.2\.3", described)
        await kubectl("uncordon", name)
        ((_, status, *_),) = await kubectl.rows("node", name)
        assert status == "Ready"
    finally:
        await kubectl("delete", "node", name)


async def test_pods_are_found_by_label_field_name_and_namespace(kubectl: Kubectl) -> None:
    pods = [pod("a", labels={"team": "red"}), pod("b", labels={"team": "blue"}), pod("c")]
    await kubectl("create", "-f", "-", given=pods)
    await kubectl.say("b", {"phase": "Running"})
    assert await kubectl.names("pods") == ["pod/a", "pod/b", "pod/c"]
    assert await kubectl.names("pods", "-l", "team in (red,blue),team!=blue") == ["pod/a"]
    assert await kubectl.names("pods", "--field-selector", "status.phase=Running") == ["pod/b"]
    assert await kubectl.names("po/c") == ["pod/c"]
    everywhere = await kubectl.rows("pods", "-A", "--field-selector", "status.phase=Running")
    assert [kubectl.api.namespace, "b"] in [row[:2] for row in everywhere]
    assert (await kubectl.json("pod", "a"))["spec"]["schedulerName"] == "nobody"
    assert "\nkind: Pod\n" in await kubectl("get", "pod", "a", "-o", "yaml")
    youngest = await kubectl("get", "pods", "--sort-by=.metadata.labels.team", "-o", "name")
    assert youngest.split() == ["pod/c", "pod/b", "pod/a"]


async def test_a_watch_shows_rows_as_they_change(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", given=pod("first"))
    watching = await asyncio.create_subprocess_exec(
        *kubectl.command("get", "pods", "--watch", "--output-watch-events"),
        stdout=asyncio.subprocess.PIPE, env=os.environ | {"KUBECACHEDIR": str(kubectl.cache)},
    )  # fmt: skip
    assert watching.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE):
            lines = [await watching.stdout.readline() for _ in range(2)]
            await kubectl("create", "-f", "-", given=pod("second"))
            lines += [await watching.stdout.readline()]
            await kubectl.say("second", {"phase": "Failed", "reason": "Evicted"})
            lines += [await watching.stdout.readline()]
            await kubectl("delete", "pod", "second")
            while not lines[-1].startswith(b"DELETED"):
                lines += [await watching.stdout.readline()]
    finally:
        watching.kill()
        await watching.wait()
    shown = [line.decode().split() for line in lines]
    assert shown[0] == ["EVENT", "NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert [row[:4] for row in shown[1:4]] == [
        ["ADDED", "first", "0/1", "Pending"],
        ["ADDED", "second", "0/1", "Pending"],
        ["MODIFIED", "second", "0/1", "Evicted"],
    ]
    assert shown[-1][:2] == ["DELETED", "second"]


async def test_describe_tells_what_an_object_is_and_what_happened_to_it(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", given=[pod("p", labels={"team": "red"}), deployment(), job(completions=3)])
    found = await kubectl.json("pod", "p")
    about = {"kind": "Pod", "name": "p", "namespace": kubectl.api.namespace, "uid": found["metadata"]["uid"]}
    event = {
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "p.1"}, "involvedObject": about, "count": 3,
        "type": "Warning", "reason": "NoGPUFits", "message": "No single GPU has 7000 MiB free.",
        "source": {"component": "gpushare"}, "firstTimestamp": CREATED, "lastTimestamp": CREATED,
    }  # fmt: skip
    await kubectl("create", "-f", "-", given=event)
    described = await kubectl("describe", "pod", "p")
    for words in (r"Name: +p\n", r"Labels: +team=red\n", r"Status: +Pending\n", r"Node: +<none>\n"):
        assert re.search(words, described), described
    assert re.search(r"Warning +NoGPUFits +\S+ \(x3 over \S+\) +gpushare +No single GPU has 7000 MiB free\.", described)
    await kubectl("wait", "deployment/web", "--for=jsonpath={.status.replicas}=2", WAIT)
    described = await kubectl("describe", "deployment", "web")
    assert re.search(r"Replicas: +2 desired \| 2 updated \| 2 total \| 0 available \| 2 unavailable\n", described)
    assert re.search(r"StrategyType: +RollingUpdate\n", described)
    assert re.search(r"RollingUpdateStrategy: +25% max unavailable, 25% max surge\n", described)
    assert re.search(r"Available +False +MinimumReplicasUnavailable\n", described)
    await kubectl("wait", "job/batch", "--for=jsonpath={.status.active}=1", WAIT)
    described = await kubectl("describe", "job", "batch")
    assert re.search(r"Completions: +3\n", described)
    assert re.search(r"Pods Statuses: +1 Active \(0 Ready\) / 0 Succeeded / 0 Failed\n", described)
    assert re.search(r"SuccessfulCreate +\S+ +job-controller +Created pod: batch-", described)


async def test_what_there_is_can_be_asked(kubectl: Kubectl) -> None:
    assert re.search(r"Server Version: v1\.36\.", await kubectl("version"))
    listed = {tuple(line.split()) for line in (await kubectl("api-resources", "--no-headers")).splitlines()}
    for row in (
        ("pods", "po", "v1", "true", "Pod"),
        ("nodes", "no", "v1", "false", "Node"),
        ("configmaps", "cm", "v1", "true", "ConfigMap"),
        ("events", "ev", "v1", "true", "Event"),
        ("namespaces", "ns", "v1", "false", "Namespace"),
        ("deployments", "deploy", "apps/v1", "true", "Deployment"),
        ("jobs", "batch/v1", "true", "Job"),
    ):
        assert row in listed
    in_all = (await kubectl("api-resources", "--categories=all", "-o", "name")).split()
    assert {"pods", "deployments.apps", "jobs.batch"} <= set(in_all)


# Changing


async def test_apply_creates_then_says_unchanged(kubectl: Kubectl) -> None:
    given = [deployment(), job(), config_map(n="1"), pod("p")]
    first = (await kubectl("apply", "-f", "-", given=given)).splitlines()
    assert first == [
        f"{name} created" for name in ("deployment.apps/web", "job.batch/batch", "configmap/settings", "pod/p")
    ]
    second = (await kubectl("apply", "-f", "-", given=given)).splitlines()
    assert second == [line.replace("created", "unchanged") for line in first]
    noted = (await kubectl.json("configmap", "settings"))["metadata"]["annotations"]
    assert '"n":"1"' in noted["kubectl.kubernetes.io/last-applied-configuration"]


async def test_an_amount_in_other_words_is_no_change(kubectl: Kubectl) -> None:
    """7000 is stored as 7k, so that kubectl believes there is something to do."""
    await kubectl("apply", "-f", "-", given=deployment(amount="7000"))
    version = (await kubectl.json("deployment", "web"))["metadata"]["generation"]
    assert await kubectl("apply", "-f", "-", given=deployment(amount="7000")) == "deployment.apps/web configured\n"
    assert (await kubectl.json("deployment", "web"))["metadata"]["generation"] == version


async def test_apply_of_a_changed_object_is_for_a_real_server(kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", given=deployment(replicas=2))
    changed = deployment(replicas=3)
    if kubectl.backend == REAL:
        assert await kubectl("apply", "-f", "-", given=changed) == "deployment.apps/web configured\n"
    else:
        for how in ((), ("--server-side",)):
            assert "use kubectl replace" in await kubectl("apply", *how, "-f", "-", given=changed, fails=True)
        assert await kubectl("replace", "-f", "-", given=changed) == "deployment.apps/web replaced\n"
    assert (await kubectl.json("deployment", "web"))["spec"]["replicas"] == 3


async def test_replace_puts_another_object_in_its_place(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", given=config_map(n="1", old="yes"))
    assert await kubectl("replace", "-f", "-", given=config_map(n="2")) == "configmap/settings replaced\n"
    assert (await kubectl.json("configmap", "settings"))["data"] == {"n": "2"}
    complaint = await kubectl("replace", "-f", "-", given=config_map("other"), fails=True)
    assert complaint.startswith("Error from server (NotFound): error when replacing")
    again = await kubectl("create", "-f", "-", given=config_map(), fails=True)
    assert again == (
        'Error from server (AlreadyExists): error when creating "STDIN": configmaps "settings" already exists\n'
    )


async def test_labels_annotations_and_patches(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", given=pod("p", labels={"team": "red"}))
    assert await kubectl("annotate", "pod", "p", "example.com/a=b") == "pod/p annotated\n"
    assert await kubectl("label", "pod", "p", "team-", "tier=1") == "pod/p modified\n"
    image = {"spec": {"containers": [{"name": "main", "image": "busybox:2"}]}}
    assert await kubectl("patch", "pod", "p", "-p", json.dumps(image)) == "pod/p patched\n"
    found = await kubectl.json("pod", "p")
    assert (found["metadata"]["labels"], found["metadata"]["annotations"]) == ({"tier": "1"}, {"example.com/a": "b"})
    assert found["spec"]["containers"][0]["image"] == "busybox:2"


async def test_delete_waits_until_it_is_gone(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", given=[pod("a"), pod("b"), config_map()])
    namespace = kubectl.api.namespace
    assert await kubectl("delete", "pod", "a") == f'pod "a" deleted from {namespace} namespace\n'
    assert await kubectl.names("pods") == ["pod/b"]
    assert await kubectl("delete", "pods", "--all") == f'pod "b" deleted from {namespace} namespace\n'
    assert await kubectl("get", "pods") == ""
    missing = await kubectl("delete", "pod", "a", fails=True)
    assert missing == 'Error from server (NotFound): pods "a" not found\n'
    assert await kubectl("delete", "pod", "a", "--ignore-not-found") == ""


# Deployments and Jobs


async def test_a_deployment_has_as_many_pods_as_it_is_scaled_to(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", given=deployment(replicas=1))
    await kubectl("wait", "deployment/web", "--for=jsonpath={.status.updatedReplicas}=1", WAIT)
    assert await kubectl("scale", "deployment", "web", "--replicas=3") == "deployment.apps/web scaled\n"
    await kubectl("wait", "deployment/web", "--for=jsonpath={.status.updatedReplicas}=3", WAIT)
    assert [row[:4] for row in await kubectl.rows("deployments")] == [["web", "0/3", "3", "0"]]
    pods = await kubectl.names("pods", "-l", "app=web")
    assert len(pods) == 3
    assert all(re.fullmatch(r"pod/web-(\w+-)?[a-z0-9]{5}", name) for name in pods)
    complaint = await kubectl("scale", "deployment", "web", "--replicas=1", "--current-replicas=2", fails=True)
    assert "Expected replicas to be 2, was 3" in complaint
    await kubectl("scale", "deployment", "web", "--replicas=1", "--current-replicas=3")
    await kubectl("wait", "deployment/web", "--for=jsonpath={.status.replicas}=1", WAIT)
    assert len(await kubectl.names("pods", "-l", "app=web")) == 1


async def test_a_deleted_pod_is_replaced(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", given=deployment(replicas=1))
    await kubectl("wait", "deployment/web", "--for=jsonpath={.status.replicas}=1", WAIT)
    (first,) = await kubectl.names("pods")
    await kubectl("delete", first)
    await kubectl("wait", "pods", "-l", "app=web", "--for=create", WAIT)
    (second,) = await kubectl.names("pods")
    assert second != first


async def test_a_deployment_is_available_when_its_pods_are_ready(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", given=deployment(replicas=2))
    await kubectl("wait", "deployment/web", "--for=jsonpath={.status.replicas}=2", WAIT)
    await kubectl("wait", "deployment/web", "--for=condition=Available=False", WAIT)
    for name in await kubectl.names("pods"):
        await kubectl.say(name.removeprefix("pod/"), {"phase": "Running", "conditions": [ready()]})
    assert await kubectl("wait", "deployment/web", "--for=condition=Available", WAIT) == (
        "deployment.apps/web condition met\n"
    )
    await kubectl("rollout", "status", "deployment/web", WAIT)
    assert [row[:4] for row in await kubectl.rows("deployments")] == [["web", "2/2", "2", "2"]]
    assert "timed out waiting" in await kubectl(
        "wait", "deployment/web", "--for=condition=Available=False", "--timeout=1s", fails=True
    )


async def test_a_job_is_complete_when_enough_of_its_pods_have_succeeded(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", given=job(completions=2))
    seen: set[str] = set()
    for _ in range(2):
        await kubectl("wait", "job/batch", "--for=jsonpath={.status.active}=1", WAIT)
        found = await _pods_in(kubectl, "Pending")
        (name,) = found - seen
        seen.add(name)
        await kubectl.say(name, {"phase": "Succeeded", "containerStatuses": [state(terminated=DONE)]})
        await kubectl("wait", "job/batch", f"--for=jsonpath={{.status.succeeded}}={len(seen)}", WAIT)
    assert await kubectl("wait", "job/batch", "--for=condition=complete", WAIT) == "job.batch/batch condition met\n"
    assert [row[:3] for row in await kubectl.rows("jobs")] == [["batch", "Complete", "2/2"]]
    assert {row[0]: row[2] for row in await kubectl.rows("pods")} == dict.fromkeys(seen, "Completed")


async def test_a_job_whose_pods_fail_too_often_has_failed(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", given=job(backoffLimit=0))
    await kubectl("wait", "job/batch", "--for=jsonpath={.status.active}=1", WAIT)
    (name,) = await _pods_in(kubectl, "Pending")
    await kubectl.say(name, {"phase": "Failed", "containerStatuses": [state(terminated=CRASHED)]})
    await kubectl("wait", "job/batch", "--for=condition=failed", WAIT)
    found = (await kubectl.json("job", "batch"))["status"]
    assert (found["failed"], found.get("succeeded", 0), found.get("active", 0)) == (1, 0, 0)
    reasons = {condition["type"]: condition["reason"] for condition in found["conditions"]}
    assert reasons["Failed"] == "BackoffLimitExceeded"
    assert [row[:3] for row in await kubectl.rows("jobs")] == [["batch", "Failed", "0/1"]]


async def _pods_in(kubectl: Kubectl, phase: str) -> set[str]:
    names = await kubectl.names("pods", "--field-selector", f"status.phase={phase}")
    return {name.removeprefix("pod/") for name in names}


@pytest.mark.parametrize("cascade", ["background", "foreground"])
async def test_pods_go_with_their_owner(kubectl: Kubectl, cascade: str) -> None:
    await kubectl("create", "-f", "-", given=[deployment(), job()])
    await kubectl("wait", "deployment/web", "--for=jsonpath={.status.replicas}=2", WAIT)
    await kubectl("wait", "job/batch", "--for=jsonpath={.status.active}=1", WAIT)
    for what in ("deployment/web", "job/batch"):
        await kubectl("delete", what, f"--cascade={cascade}", WAIT)
        await kubectl("get", what, fails=True)
    if cascade == "foreground":
        assert await kubectl.names("pods") == []
    await kubectl("wait", "pods", "--all", "--for=delete", WAIT)


async def test_orphans_stay(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", given=job(parallelism=2, completions=2))
    await kubectl("wait", "job/batch", "--for=jsonpath={.status.active}=2", WAIT)
    await kubectl("delete", "job", "batch", "--cascade=orphan", WAIT)
    orphans = (await kubectl.json("pods"))["items"]
    assert [pod["metadata"].get("ownerReferences") for pod in orphans] == [None, None]
    # a real cluster marks pods of jobs; whoever takes the job away has to take the mark away
    await kubectl("patch", "pods", *[pod["metadata"]["name"] for pod in orphans], "--type=merge",
                  "-p", '{"metadata": {"finalizers": null}}')  # fmt: skip


# Admission, and what the embedded server cannot do


async def test_new_pods_are_told_their_gpus_as_the_shipped_policy_does(kubectl: Kubectl) -> None:
    policy = str(shipped.DEPLOY / "admission.yaml")
    cases = test_admission_effect.CASES
    given = [
        test_admission_effect.pod(apps, inits, name=f"case-{i}") for i, (apps, inits, _) in enumerate(cases.values())
    ]
    if kubectl.backend == REAL:
        await kubectl("apply", "-f", policy)
    try:
        await _until_pinned(kubectl)
        await kubectl("create", "-f", "-", given=given)
        pods = {item["metadata"]["name"]: item for item in (await kubectl.json("pods"))["items"]}
        for i, (case, (_, _, expected)) in enumerate(cases.items()):
            assert test_admission_effect.environments(pods[f"case-{i}"]) == expected, case
    finally:
        if kubectl.backend == REAL:
            await kubectl("delete", "-f", policy)


async def _until_pinned(kubectl: Kubectl) -> None:
    """A policy is in force a moment after it was applied."""
    probe = test_admission_effect.pod([test_admission_effect.container("main", mem=1)], [], generateName="probe-")
    async with asyncio.timeout(PATIENCE):
        while True:
            made = await kubectl.api.create(kubectl.api.pods, probe)
            if test_admission_effect.environments(made)["main"]:
                return
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("backend", [EMBEDDED], indirect=True)
@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["create", "deployment", "x", "--image=y"], "--dry-run=client -o yaml | kubectl create -f -"),
        (["delete", "deployment", "web", "--dry-run=server"], "is not part of gpushare's test API server"),
        (["rollout", "pause", "deployment/web"], "spec.paused of a Deployment is not part of gpushare's test"),
        (["rollout", "undo", "deployment/web"], "the server could not find the requested resource"),
        (["patch", "deployment", "web", "--type=json", "-p", "[]"], "accepted media types include"),
        (["get", "services"], 'the server doesn\'t have a resource type "services"'),
    ],
)  # fmt: skip
async def test_what_the_embedded_server_cannot_do_it_says(kubectl: Kubectl, words: list[str], complaint: str) -> None:
    await kubectl("create", "-f", "-", given=deployment(replicas=0))
    assert complaint in await kubectl(*words, fails=True)
