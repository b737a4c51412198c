"""The validator with its own account on a real API server: annotation, events, the pod that is tried, and its rights.

Scheduler and kubelet are played by the test. tests/e2e/test_operator.py has the real ones.
"""

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gpushare.core.annotations import node_gpus, validation
from gpushare.core.annotations.validation import Checks
from gpushare.core.facts import intree, names, objects
from gpushare.core.facts.model import Gpu, Pin
from gpushare.kube import client, requests, resources
from gpushare.kube.auth import login
from gpushare.kube.errors import ApiError
from gpushare.kube.scraping.server import Listening
from gpushare.obs import http
from gpushare.validate import keeper
from gpushare.validate.app import Config, Validator
from gpushare.validate.workload import pod, room, trial
from tests.e2e.harness import audit, shipped
from tests.e2e.harness.cluster import Cluster
from tests.e2e.harness.figures import Figures
from tests.support import api_client
from tests.support.wait import eventually, eventually_asked
from tests.validate.machine import Machine

NODE, ACCOUNT = "validated-a", "gpushare-validator"
FILE = shipped.DEPLOY / "operator" / "validator.yaml"
PODS = f"/api/v1/namespaces/{shipped.NAMESPACE}/pods"
EVENTS = f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={NODE}"
GPUS = (Gpu(0, "GPU-0", 8000, True, ""), Gpu(1, "GPU-1", 8000, True, ""))
OFFER = {"cpu": "64", "memory": "512Gi", "pods": "250", names.GPU_MEM: "16000", names.GPU_COUNT: "2"}
PATIENCE = 30.0
Object = dict[str, Any]
Right = tuple[str, str, str]  # where ("" is everywhere), what, which verb


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    made.install()
    made.devices("nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1")
    made.program()
    for key, value in made.environment.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setattr(keeper, "LOOK_SECONDS", 0.2)
    monkeypatch.setattr(trial, "POLL_SECONDS", 0.2)
    return made


@pytest.fixture
async def node(cluster: Cluster, api: api_client.Api) -> AsyncIterator[Object]:
    """With what other programs have written; the validator's account is there, too."""
    await cluster.kubectl("apply", "-f", FILE)
    annotations = {names.NODE_GPUS: node_gpus.write("MiB", Pin.DIRECT, GPUS), "mine": "stays"}
    made = await api.create("/api/v1/nodes", {"metadata": {"name": NODE, "annotations": annotations}})
    await api.patch(f"/api/v1/nodes/{NODE}/status", {"status": {"capacity": OFFER, "allocatable": OFFER}})
    await api.patch(f"/api/v1/nodes/{NODE}", {"spec": {"taints": None}})  # kubelet is never ready here
    try:
        yield made
    finally:
        await api.call("DELETE", f"/api/v1/nodes/{NODE}")
        await cluster.kubectl("delete", "-f", FILE)


class World:
    def __init__(self, cluster: Cluster, api: api_client.Api, machine: Machine, node_part: str, own: str) -> None:
        self.cluster, self.api, self.machine, self.node_part, self.own = cluster, api, machine, node_part, own
        self.folder = machine.folder / "validations"
        self.token = ""

    @contextlib.asynccontextmanager
    async def validator(self) -> AsyncIterator[Validator]:
        path = f"/api/v1/namespaces/{shipped.NAMESPACE}/serviceaccounts/{ACCOUNT}/token"
        answer = await self.cluster.call("POST", path, {"spec": {"expirationSeconds": 3600}})
        self.token = answer["status"]["token"]
        access = login.load(str(self.cluster.kubeconfig(ACCOUNT, self.token)), None, os.environ, Path.home())
        config = Config(
            trial.Config(NODE, shipped.NAMESPACE, self.own), self.machine.places(), self.folder, self.node_part,
            status_listen=Listening("0.0.0.0", 0),
        )  # fmt: skip
        async with client.connect(access) as api:
            made = Validator(config, api)
            work = asyncio.create_task(made.run())
            try:
                yield made
            finally:
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)
                await made.end()

    async def found(self) -> Object:
        answer = await self.api.get(f"/api/v1/nodes/{NODE}")
        assert answer.code == 200
        return dict(answer.body)

    async def says(self, **states: str) -> Checks:
        async def said() -> Checks | None:
            annotations = (await self.found())["metadata"]["annotations"]
            checks = validation.read(objects.Node(objects.Metadata(annotations=annotations))) or {}
            right = all(name in checks and checks[name].state == state for name, state in states.items())
            return checks if right else None

        return await eventually_asked(said, f"{states}", PATIENCE)

    async def tried(self) -> Object:
        async def found() -> Object | None:
            listed = (await self.api.get(PODS)).body["items"]
            return next((one for one in listed if one["metadata"]["name"].startswith(pod.PREFIX)), None)

        return await eventually_asked(found, "the pod that is tried", PATIENCE)

    async def run_pod(self) -> Object:
        """As scheduler and kubelet do."""
        made = await self.tried()
        path, gpu = f"{PODS}/{made['metadata']['name']}", {names.ALLOCATION: '{"0":{"1":1}}'}
        body = {"metadata": {"name": made["metadata"]["name"], "annotations": gpu}, "target": {"name": NODE}}
        answer = await self.api.call("POST", f"{path}/binding", body)
        assert answer.code == 201, answer.body
        ended = {"terminated": {"exitCode": 0, "message": json.dumps({"gpus": ["GPU-1"]})}}
        containers = [{"name": pod.CONTAINER, "state": ended, "image": "x", "imageID": "x", "ready": False,
                       "restartCount": 0}]  # fmt: skip
        status = {"status": {"phase": "Succeeded", "containerStatuses": containers}}
        assert (await self.api.patch(f"{path}/status", status)).code == 200
        return made

    async def end_deleted_pods(self) -> None:
        """As kubelet does."""
        while True:
            for one in (await self.api.get(PODS)).body["items"]:
                if "deletionTimestamp" in one["metadata"] and one["metadata"]["name"].startswith(pod.PREFIX):
                    await self.api.call("DELETE", f"{PODS}/{one['metadata']['name']}", {"gracePeriodSeconds": 0})
            await asyncio.sleep(0.2)


@pytest.fixture
async def world(cluster: Cluster, api: api_client.Api, machine: Machine, node: Object) -> AsyncIterator[World]:
    part = await http.serve_probes("127.0.0.1", 0, lambda: "", lambda: "", lambda: (b"", "text/plain"))
    spec = {"schedulerName": "nobody", "containers": [{"name": "v", "image": "r.example/gpushare:7"}]}
    own = await api.create(PODS, {"metadata": {"generateName": "gpushare-validator-"}, "spec": spec})
    made = World(cluster, api, machine, f"http://127.0.0.1:{part.addresses[0][1]}/readyz", own["metadata"]["name"])
    ending = asyncio.create_task(made.end_deleted_pods())
    try:
        yield made
    finally:
        ending.cancel()
        await asyncio.gather(ending, return_exceptions=True)
        await api.call("DELETE", f"{PODS}/{made.own}", {"gracePeriodSeconds": 0})
        await part.cleanup()


async def test_the_validator_says_how_the_node_is_with_its_own_rights_and_no_others(
    world: World, figures: Figures
) -> None:
    mark, began = world.cluster.audit.mark(), time.monotonic()
    async with world.validator() as validator:
        made = await world.run_pod()
        said = await world.says(driver="passed", toolkit="passed", plugin="passed", mps="skipped", workload="passed")
        took = time.monotonic() - began
        assert said["workload"].why == "a pod with 1 aliyun.com/gpu-mem sees exactly GPU-1"
        assert {file.name for file in world.folder.iterdir()} == {
            "driver-ready", "toolkit-ready", "plugin-ready", "cuda-ready",
        }  # fmt: skip
        _check_pod(made, world.own)
        await _check_owner(world)
        await _check_annotation_is_put_back(world)
        await _check_events(world)
        await _check_its_own_account_may_not_read_metrics(world, validator)
        writes = validator.annotation.writes
    metadata = (await world.found())["metadata"]
    assert names.VALIDATION not in metadata["annotations"]
    assert metadata["annotations"]["mine"] == "stays"
    assert list(world.folder.iterdir()) == []
    granted = _granted()
    requests: list[audit.Request] = []

    def all_used() -> bool:
        requests[:] = _of_validator(world.cluster, mark)
        return not _unused(granted, requests)

    with contextlib.suppress(AssertionError):
        await eventually(all_used, "every right is used", PATIENCE)
    assert _unused(granted, requests) == set()
    assert [r for r in requests if r.response_status.code == 403] == []
    figures.say(
        "the validator",
        f"all checks {took:.1f} s after its start, with a pod; {len(granted)} rights, all used; "
        f"{writes} writes of the annotation",
    )


def _check_pod(made: Object, own: str) -> None:
    spec = made["spec"]
    assert spec["containers"][0]["image"] == "r.example/gpushare:7"
    assert made["metadata"]["ownerReferences"][0]["name"] == own
    assert spec["schedulerName"] == "gpu-scheduler"


async def _check_owner(world: World) -> None:
    """The annotation is the validator's by server-side apply, and nothing else is."""
    fields = (await world.found())["metadata"]["managedFields"]
    (ours,) = (entry for entry in fields if entry["manager"] == names.VALIDATOR_MANAGER)
    assert ours["operation"] == "Apply"
    assert ours["fieldsV1"] == {"f:metadata": {"f:annotations": {f"f:{names.VALIDATION}": {}}}}


async def _check_annotation_is_put_back(world: World) -> None:
    await world.api.patch(f"/api/v1/nodes/{NODE}", {"metadata": {"annotations": {names.VALIDATION: "{}"}}})
    await world.says(driver="passed")


async def _check_events(world: World) -> None:
    world.machine.library.unlink()
    await world.says(driver="failed", workload="waiting")
    world.machine.install()
    await world.run_pod()
    await world.says(driver="passed", workload="passed")

    async def told() -> bool:
        listed = (await world.api.get(EVENTS)).body["items"]
        return {"ValidationFailed", "ValidationPassed"} <= {event["reason"] for event in listed}

    await eventually_asked(told, "events", PATIENCE)


async def _check_its_own_account_may_not_read_metrics(world: World, validator: Validator) -> None:
    """To say so, it asks the API server whose the token is, and what that one may."""
    server = validator.server
    assert server is not None
    port = await eventually(lambda: server.port, "the port for Prometheus", PATIENCE)
    bearer = {"Authorization": f"Bearer {world.token}"}
    url = f"https://127.0.0.1:{port}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url, ssl=False, headers=bearer) as response:
        assert response.status == 403


async def test_the_pod_that_is_tried_may_be_made_where_pods_are_restricted(
    api: api_client.Api, cluster: Cluster
) -> None:
    label = "pod-security.kubernetes.io/enforce"
    await cluster.kubectl("label", "namespace", api.namespace, f"{label}=restricted")
    written = node_gpus.write("MiB", Pin.DIRECT, GPUS)
    asks = room.asked(intree.Node(objects.Metadata(name=NODE, annotations={names.NODE_GPUS: written})))
    assert asks is not None
    given = pod.Given(api.namespace, NODE, trial.node_label(NODE), "gpushare:1")
    made = await api.create(api.pods, pod.made(asks, given))
    assert made["metadata"]["name"].startswith(pod.PREFIX)


UNUSUAL: dict[str, Object] = {
    "privileged": {"containers": [{"securityContext": {"privileged": True, "allowPrivilegeEscalation": True}}]},
    "an added capability": {"containers": [{"securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}}]},
    "the node's network": {"hostNetwork": True},
    "as root": {"securityContext": {"runAsNonRoot": False, "runAsUser": 0}},
    "a folder of the node": {"volumes": [{"name": "root", "hostPath": {"path": "/"}}]},
    "a secret": {"volumes": [{"name": "all", "secret": {"secretName": "any"}}]},
    "another account": {"serviceAccountName": "gpushare-validator"},
    "a token": {"automountServiceAccountToken": True},
}


async def test_the_account_makes_no_pod_but_an_ordinary_one(cluster: Cluster, node: Object) -> None:
    guard = shipped.DEPLOY / "operator" / "validator-guard.yaml"
    await cluster.kubectl("apply", "-f", guard)
    answer = await cluster.call(
        "POST", f"/api/v1/namespaces/{shipped.NAMESPACE}/serviceaccounts/{ACCOUNT}/token",
        {"spec": {"expirationSeconds": 3600}},
    )  # fmt: skip
    access = login.load(str(cluster.kubeconfig(ACCOUNT, answer["status"]["token"])), None, os.environ, Path.home())
    asks = room.asked(intree.Node(objects.Metadata(name=NODE, annotations=node["metadata"]["annotations"])))
    assert asks is not None
    usual = pod.made(asks, pod.Given(shipped.NAMESPACE, NODE, trial.node_label(NODE), "gpushare:1"))
    try:
        async with client.connect(access) as api:

            async def refused(changes: Object) -> bool:
                body = {**usual, "spec": _merged(usual["spec"], changes)}
                request = requests.create(resources.PODS, shipped.NAMESPACE, body)._replace(query={"dryRun": "All"})
                try:
                    await api.send(request)
                except ApiError as error:
                    return "the validator makes only pods" in error.message
                return False

            await eventually_asked(lambda: refused(UNUSUAL["privileged"]), "the policy is in force", PATIENCE)
            assert {name for name, changes in UNUSUAL.items() if not await refused(changes)} == set()
            assert not await refused({})
            mps = [{"name": "gpushare-mps", "hostPath": {"path": names.MPS_PIPE_FOLDER}}]
            assert not await refused({"volumes": mps})
    finally:
        await cluster.kubectl("delete", "-f", guard)


def _merged(spec: Object, changes: Object) -> Object:
    """Of containers the first one, of objects what is said."""
    merged = dict(spec)
    for key, value in changes.items():
        if key == "containers":
            merged[key] = [_merged(spec[key][0], value[0])]
        else:
            merged[key] = _merged(spec[key], value) if isinstance(value, dict) and key in spec else value
    return merged


def _granted() -> set[Right]:
    documents = shipped.documents("operator/validator.yaml")
    return {
        (document["metadata"].get("namespace", ""), resource, verb)
        for document in documents
        if document["kind"] in ("ClusterRole", "Role")
        for rule in document["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def _of_validator(cluster: Cluster, mark: int) -> list[audit.Request]:
    user = f"system:serviceaccount:{shipped.NAMESPACE}:{ACCOUNT}"
    return [request for request in cluster.audit.since(mark) if request.user.username == user]


def _unused(granted: set[Right], requests: list[audit.Request]) -> set[Right]:
    done = [request for request in requests if request.response_status.code < 400]
    everywhere = {("", request.kind, request.verb) for request in done}
    return granted - everywhere - {(request.object_ref.namespace, request.kind, request.verb) for request in done}
