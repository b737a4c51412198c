"""Deployments and Jobs get their pods, and pods whose owner is gone go: through the API, with controllers running."""

import random
from functools import partial
from pathlib import Path
from typing import Any

from gpushare.devcluster.apiserver.kinds import table
from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.devcluster.cluster import DevCluster
from tests.contracts.api import test_api_behaviour_workloads as bodies
from tests.support import embedded_cluster
from tests.support.api_client import Api, Object
from tests.support.embedded_cluster import names, objects
from tests.support.wait import until

SLEEPS = {"name": "main", "image": "busybox", "command": ["sleep", "0.01"]}
GPU_NODES = "/apis/gpushare.io/v1alpha1/gpunodes"
FAILS = {"name": "main", "image": "busybox", "command": ["false"]}


def web(replicas: int = 3) -> Object:
    return bodies.deployment(replicas=replicas)


def batch(container: Object, **spec: int) -> Object:
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {"metadata": {"name": "batch"}, "spec": {"template": template, **spec}}


def status(server: ApiServer, api: Api, resource: str, name: str) -> Object:
    found = embedded_cluster.get(server, api.namespace, name, resource)
    assert found is not None
    return dict(found["status"])


async def pods(server: ApiServer, count: int) -> list[str]:
    """Their names, as soon as there are so many."""
    await until(server, lambda: len(names(server)) == count)
    return names(server)


def condition(found: Object, type_: str) -> str | None:
    return next((c["status"] for c in found.get("conditions", []) if c["type"] == type_), None)


async def test_a_deployment_gets_its_pods_and_is_available_when_they_run(tmp_path: Path) -> None:
    async with embedded_cluster.cluster(tmp_path) as (dev, api):
        await api.create(bodies.deployments(api), web())
        await until(dev.server, lambda: len(names(dev.server, app="web")) == 3)
        assert all(name.startswith("web-") for name in names(dev.server))
        await until(dev.server, lambda: status(dev.server, api, "deployments.apps", "web").get("replicas") == 3)
        assert condition(status(dev.server, api, "deployments.apps", "web"), "Available") == "False"
        await embedded_cluster.bind_all(dev.server, api)
        found = await until(
            dev.server, lambda: _if(status(dev.server, api, "deployments.apps", "web"), readyReplicas=3)
        )
        assert condition(found, "Available") == "True"
        assert "unavailableReplicas" not in found
        owner = objects(dev.server)[0]["metadata"]["ownerReferences"][0]
        assert (owner["kind"], owner["name"], owner["controller"]) == ("Deployment", "web", True)


def _job_says(server: ApiServer, api: Api, **wanted: int) -> Object | None:
    return _if(status(server, api, "jobs.batch", "batch"), **wanted)


def _at_most(server: ApiServer, these: set[str], count: int) -> bool:
    return len(these & set(names(server))) <= count


def _if(found: Object, **wanted: int) -> Object | None:
    return found if all(found.get(field) == value for field, value in wanted.items()) else None


async def test_names_come_from_the_dice_that_were_passed_in(tmp_path: Path) -> None:
    seen = []
    for _ in range(2):
        async with embedded_cluster.cluster(tmp_path, dice=random.Random(7)) as (dev, api):
            await api.create(bodies.deployments(api), web())
            await pods(dev.server, 3)
            seen.append(names(dev.server))
    assert seen[0] == seen[1]


async def test_a_name_that_is_taken_is_not_taken_again() -> None:
    class Loaded(random.Random):
        """Throws a, a, b: the second name is the first again."""

        throws = iter("aab")

        def choices(self, *_: Any, k: int = 1, **__: Any) -> list[Any]:
            return [next(self.throws)] * k

    async with ApiServer(dice=Loaded()) as server:
        for _ in range(2):
            server.registry.create(table.BY_RESOURCE["configmaps"], "default", {"metadata": {"generateName": "x-"}})
        assert names(server, "configmaps") == ["x-aaaaa", "x-bbbbb"]


async def test_a_deleted_pod_is_replaced_at_once_though_it_is_still_ending(tmp_path: Path) -> None:
    async with embedded_cluster.cluster(tmp_path, moment=60) as (dev, api):
        await api.create(bodies.deployments(api), web(1))
        (first,) = await pods(dev.server, 1)
        await embedded_cluster.bind_all(dev.server, api)
        await api.call("DELETE", f"{api.pods}/{first}")
        both = await pods(dev.server, 2)
        assert first in both


async def test_a_pod_that_failed_is_replaced_and_left_for_people_to_see(tmp_path: Path) -> None:
    async with embedded_cluster.cluster(tmp_path) as (dev, api):
        await api.create(bodies.deployments(api), web(1))
        (first,) = await pods(dev.server, 1)
        await api.patch(f"{api.pods}/{first}/status", {"status": {"phase": "Failed", "reason": "Evicted"}})
        await pods(dev.server, 2)
        assert status(dev.server, api, "pods", first)["phase"] == "Failed"


async def test_scaling_up_and_down(tmp_path: Path) -> None:
    async with embedded_cluster.cluster(tmp_path) as (dev, api):
        await api.create(bodies.deployments(api), web(1))
        for replicas in (4, 2, 0):
            await api.patch(f"{bodies.deployments(api)}/web/scale", {"spec": {"replicas": replicas}})
            await pods(dev.server, replicas)
        reasons = [event["reason"] for event in objects(dev.server, "events")]
        assert (reasons.count("SuccessfulCreate"), reasons.count("SuccessfulDelete")) == (4, 4)


async def test_a_new_template_rolls_out_without_falling_below_what_is_wanted(tmp_path: Path) -> None:
    async with embedded_cluster.cluster(tmp_path) as (dev, api):
        await api.create(bodies.deployments(api), web(2))
        await pods(dev.server, 2)
        await embedded_cluster.bind_all(dev.server, api)
        await until(dev.server, lambda: status(dev.server, api, "deployments.apps", "web").get("readyReplicas") == 2)
        old = set(names(dev.server))
        body = web(2)
        body["spec"]["template"]["spec"]["containers"][0]["image"] = "busybox:2"
        await api.call("PUT", f"{bodies.deployments(api)}/web", body)
        for left in (1, 0):
            await until(dev.server, lambda: _unbound(dev.server))
            ready = status(dev.server, api, "deployments.apps", "web")["readyReplicas"]
            assert ready >= 2, "an old one goes only when a new one is ready"
            await embedded_cluster.bind_all(dev.server, api)
            await until(dev.server, partial(_at_most, dev.server, old, left))
        images = {pod["spec"]["containers"][0]["image"] for pod in objects(dev.server)}
        assert images == {"busybox:2"}


def _unbound(server: ApiServer) -> list[Object]:
    return [pod for pod in objects(server) if not pod["spec"].get("nodeName")]


async def test_a_job_runs_its_pods_beside_each_other_and_completes(tmp_path: Path) -> None:
    async with embedded_cluster.cluster(tmp_path) as (dev, api):
        await api.create(bodies.jobs(api), batch(SLEEPS, completions=3, parallelism=2))
        await pods(dev.server, 2)
        while not condition(status(dev.server, api, "jobs.batch", "batch"), "Complete"):
            await embedded_cluster.bind_all(dev.server, api)
            running = [pod for pod in objects(dev.server) if pod["status"]["phase"] != "Succeeded"]
            assert len(running) <= 2
            await until(dev.server, lambda: _unbound(dev.server) or _ended(dev.server, api))
        found = status(dev.server, api, "jobs.batch", "batch")
        assert (found["succeeded"], found.get("failed"), found.get("active")) == (3, None, None)
        assert found["completionTime"] >= found["startTime"]
        said = [event["reason"] for event in objects(dev.server, "events") if event["involvedObject"]["kind"] == "Job"]
        assert said.count("Completed") == 1


def _ended(server: ApiServer, api: Api) -> bool:
    found = status(server, api, "jobs.batch", "batch")
    return bool(condition(found, "Complete") or condition(found, "Failed"))


async def test_a_job_gives_up_after_as_many_failures_as_allowed(tmp_path: Path) -> None:
    async with embedded_cluster.cluster(tmp_path) as (dev, api):
        await api.create(bodies.jobs(api), batch(FAILS, backoffLimit=2))
        while not _ended(dev.server, api):
            await embedded_cluster.bind_all(dev.server, api)
            await until(dev.server, lambda: _unbound(dev.server) or _ended(dev.server, api))
        found = status(dev.server, api, "jobs.batch", "batch")
        assert (condition(found, "Failed"), found["failed"], len(names(dev.server))) == ("True", 3, 3)


async def test_a_pod_that_succeeded_counts_even_when_it_is_deleted(tmp_path: Path) -> None:
    async with embedded_cluster.cluster(tmp_path) as (dev, api):
        await api.create(bodies.jobs(api), batch(SLEEPS, completions=2))
        for count in (1, 2):
            (name,) = await pods(dev.server, 1)
            await api.patch(f"{api.pods}/{name}/status", {"status": {"phase": "Succeeded"}})
            await until(dev.server, partial(_job_says, dev.server, api, succeeded=count))
            await api.call("DELETE", f"{api.pods}/{name}")
        found = await until(dev.server, partial(_job_says, dev.server, api, succeeded=2))
        assert (condition(found, "Complete"), found.get("failed")) == ("True", None)


async def test_a_pod_of_a_job_that_is_deleted_has_failed_and_is_replaced(tmp_path: Path) -> None:
    async with embedded_cluster.cluster(tmp_path) as (dev, api):
        await api.create(bodies.jobs(api), batch(SLEEPS))
        (name,) = await pods(dev.server, 1)
        await api.call("DELETE", f"{api.pods}/{name}")
        await until(dev.server, partial(_job_says, dev.server, api, failed=1, active=1))
        assert names(dev.server) != [name]


async def test_whom_the_job_sends_away_itself_has_not_failed(tmp_path: Path) -> None:
    async with embedded_cluster.cluster(tmp_path) as (dev, api):
        await api.create(bodies.jobs(api), batch(SLEEPS, parallelism=3, completions=5))
        await pods(dev.server, 3)
        await api.patch(f"{bodies.jobs(api)}/batch", {"spec": {"parallelism": 1}})
        found = await until(dev.server, partial(_job_says, dev.server, api, active=1))
        assert (len(names(dev.server)), found.get("failed")) == (1, None)


async def test_a_pod_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    async with embedded_cluster.cluster(tmp_path) as (dev, api):
        body = web(1)
        body["spec"]["template"]["metadata"]["annotations"] = {"not a key!": ""}
        await api.create(bodies.deployments(api), body)
        event = await until(dev.server, lambda: next(iter(objects(dev.server, "events")), None))
        assert (event["type"], event["reason"]) == ("Warning", "FailedCreate")
        assert "metadata.annotations" in event["message"]


async def test_pods_that_had_ended_before_the_controllers_came_count(tmp_path: Path) -> None:
    dev = DevCluster(nodes=embedded_cluster.NODES, folder=tmp_path)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "batch", "uid": "j", "controller": True}
    job = batch(SLEEPS, completions=1) | {"kind": "Job"}
    job["metadata"] |= {"uid": "j"}
    ended = {"kind": "Pod", "metadata": {"name": "p", "ownerReferences": [owner]}, "status": {"phase": "Succeeded"}}
    dev.server.load([job, ended | {"spec": {"containers": [SLEEPS]}}])
    async with dev:
        found = await until(dev.server, lambda: objects(dev.server, "jobs.batch")[0].get("status"))
        assert (found["succeeded"], condition(found, "Complete"), names(dev.server)) == (1, "True", ["p"])


# Garbage


async def test_in_the_background_the_owner_goes_first(tmp_path: Path) -> None:
    async with embedded_cluster.cluster(tmp_path) as (dev, api):
        await api.create(bodies.deployments(api), web(2))
        await pods(dev.server, 2)
        await embedded_cluster.bind_all(dev.server, api)
        await api.call("DELETE", f"{bodies.deployments(api)}/web", {"propagationPolicy": "Background"})
        assert embedded_cluster.get(dev.server, api.namespace, "web", "deployments.apps") is None
        await pods(dev.server, 0)


async def test_in_the_foreground_the_owner_waits_for_its_pods(tmp_path: Path) -> None:
    async with embedded_cluster.cluster(tmp_path, moment=60) as (dev, api):
        await api.create(bodies.deployments(api), web(1))
        (name,) = await pods(dev.server, 1)
        await embedded_cluster.bind_all(dev.server, api)
        await api.call("DELETE", f"{bodies.deployments(api)}/web", {"propagationPolicy": "Foreground"})
        await until(dev.server, lambda: objects(dev.server)[0]["metadata"].get("deletionTimestamp"))
        owner = embedded_cluster.get(dev.server, api.namespace, "web", "deployments.apps")
        assert owner is not None
        assert owner["metadata"]["finalizers"] == ["foregroundDeletion"]
        await api.call("DELETE", f"{api.pods}/{name}", {"gracePeriodSeconds": 0})
        await until(dev.server, lambda: not names(dev.server, "deployments.apps"))
        assert names(dev.server) == [], "and none was made instead"


async def test_orphans_stay_and_have_no_owner(tmp_path: Path) -> None:
    async with embedded_cluster.cluster(tmp_path) as (dev, api):
        await api.create(bodies.jobs(api), batch(SLEEPS, parallelism=2, completions=2))
        await pods(dev.server, 2)
        await api.call("DELETE", f"{bodies.jobs(api)}/batch", {"propagationPolicy": "Orphan"})
        await until(dev.server, lambda: not names(dev.server, "jobs.batch"))
        assert ["ownerReferences" in pod["metadata"] for pod in objects(dev.server)] == [False, False]


async def test_somebody_elses_finalizer_is_left_to_somebody_else(tmp_path: Path) -> None:
    async with embedded_cluster.cluster(tmp_path) as (dev, api):
        body = web(1)
        body["metadata"]["finalizers"] = ["example.com/wait"]
        await api.create(bodies.deployments(api), body)
        await until(dev.server, lambda: names(dev.server))
        await api.call("DELETE", f"{bodies.deployments(api)}/web", {"propagationPolicy": "Foreground"})
        await pods(dev.server, 0)
        owner = await until(dev.server, lambda: _only_theirs(dev.server, api))
        assert owner["metadata"]["deletionTimestamp"]


def _only_theirs(server: ApiServer, api: Api) -> Object | None:
    found = embedded_cluster.get(server, api.namespace, "web", "deployments.apps")
    return found if found and found["metadata"]["finalizers"] == ["example.com/wait"] else None


async def test_a_new_owner_of_the_same_name_does_not_inherit(tmp_path: Path) -> None:
    async with embedded_cluster.cluster(tmp_path) as (dev, api):
        await api.create(bodies.deployments(api), web(1))
        (first,) = await pods(dev.server, 1)
        await api.call("DELETE", f"{bodies.deployments(api)}/web")
        await api.create(bodies.deployments(api), web(1))
        await until(dev.server, lambda: names(dev.server) and first not in names(dev.server))
        assert len(names(dev.server)) == 1


async def test_pods_of_a_node_that_is_gone_are_gone_and_replaced(tmp_path: Path) -> None:
    async with embedded_cluster.cluster(tmp_path) as (dev, api):
        await api.create(bodies.deployments(api), web(1))
        (first,) = await pods(dev.server, 1)
        await embedded_cluster.bind_all(dev.server, api, "gpu-b")
        await until(dev.server, embedded_cluster.in_phase(dev.server, api.namespace, first, "Running"))
        await api.call("DELETE", "/api/v1/nodes/gpu-b")
        await until(dev.server, lambda: names(dev.server) and first not in names(dev.server))


async def test_a_pod_without_an_owner_is_nobodys_garbage(tmp_path: Path) -> None:
    async with embedded_cluster.cluster(tmp_path) as (dev, api):
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "gone", "controller": True}
        for name, metadata in (("alone", {}), ("foreign", {"ownerReferences": [reference]})):
            body = bodies.deployment()["spec"]["template"] | {"metadata": {"name": name, **metadata}}
            await api.create(api.pods, body)
        await api.create(bodies.deployments(api), web(1))
        await pods(dev.server, 3)
        await api.call("DELETE", f"{bodies.deployments(api)}/web")
        await pods(dev.server, 2)
        assert names(dev.server) == ["alone", "foreign"]


async def test_a_namespace_that_is_deleted_takes_everything_along(tmp_path: Path) -> None:
    async with embedded_cluster.cluster(tmp_path) as (dev, api):
        await api.create(bodies.deployments(api), web(2))
        await pods(dev.server, 2)
        await embedded_cluster.bind_all(dev.server, api)
        await api.call("DELETE", f"/api/v1/namespaces/{api.namespace}")
        assert (names(dev.server), names(dev.server, "deployments.apps")) == ([], [])
        await api.make_namespace()
        await api.create(bodies.deployments(api), web(1))
        await pods(dev.server, 1)


# GPUNodes


async def test_a_gpunode_goes_with_its_node_and_stays_if_another_node_owns_it(tmp_path: Path) -> None:
    async with embedded_cluster.cluster(tmp_path) as (dev, api):
        uids = {node["metadata"]["name"]: node["metadata"]["uid"] for node in objects(dev.server, "nodes")}
        for name, uid in (uids | {"gpu-b": "of-a-node-made-again"}).items():
            owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
            await api.create(GPU_NODES, {"metadata": {"name": name, "ownerReferences": [owner]}})
        for name in ("gpu-b", "gpu-a"):
            await api.call("DELETE", f"/api/v1/nodes/{name}")
        await until(dev.server, lambda: names(dev.server, "gpunodes.gpushare.io") == ["gpu-b"])
