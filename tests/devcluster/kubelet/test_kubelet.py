"""Pods that are bound start, run, end and go, and each container is told what its pod says: the simulated kubelet."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gpushare.core.facts import names as keys
from gpushare.devcluster.cluster import DevCluster
from gpushare.devcluster.kubelet import podstatus
from gpushare.devcluster.kubelet.podstatus import Run
from tests.support import api_client, embedded_cluster
from tests.support.api_client import Api, Object
from tests.support.embedded_cluster import get, in_phase, objects
from tests.support.wait import until

NOW, LATER = "2026-01-02T03:04:05Z", "2026-01-02T03:04:06Z"


def container(name: str = "main", *command: str, **more: Any) -> Object:
    return {"name": name, "image": "busybox", **({"command": list(command)} if command else {}), **more}


def pod(*containers: Object, init: list[Object] | None = None, policy: str = "Never", **metadata: Any) -> Object:
    spec = {"restartPolicy": policy, "containers": list(containers), **({"initContainers": init} if init else {})}
    return {"metadata": {"name": "p", **metadata}, "spec": spec}


# What a container does


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], (None, 0)),
        (["nginx"], (None, 0)),
        (["sleep", "5"], (5.0, 0)),
        (["sleep", "0.25"], (0.25, 0)),
        (["sleep", "infinity"], (None, 0)),
        (["sleep"], (None, 0)),
        (["sleep", "-1"], (None, 0)),
        (["true"], (0.0, 0)),
        (["false"], (0.0, 1)),
        (["sh", "-c", "sleep 5"], (5.0, 0)),
        (["/bin/sh", "-c", "sleep 5; echo done"], (None, 0)),
    ],
)
def test_how_long_a_container_runs_and_how_it_ends(words: list[str], expected: tuple[float | None, int]) -> None:
    assert podstatus.lifetime(Run(container("main", *words), "containers")) == expected
    assert podstatus.lifetime(Run(container() | {"args": words}, "containers")) == expected


def test_an_init_container_that_says_nothing_ends_at_once() -> None:
    assert podstatus.lifetime(Run(container(), "initContainers")) == (0.0, 0)
    assert podstatus.lifetime(Run(container("main", "sleep", "3"), "initContainers")) == (3.0, 0)


@pytest.mark.parametrize(
    ("policy", "code", "init", "expected"),
    [
        ("Always", 0, False, True),
        ("Always", 1, False, True),
        ("OnFailure", 0, False, False),
        ("OnFailure", 1, False, True),
        ("Never", 1, False, False),
        ("Always", 0, True, False),
        ("Always", 1, True, True),
        ("Never", 1, True, False),
    ],
)
def test_who_is_started_again(policy: str, code: int, init: bool, expected: bool) -> None:
    assert (
        podstatus.restarts(Run(container(), "initContainers" if init else "containers", code=code), policy) is expected
    )


def test_a_container_is_told_plain_values_and_fields_of_its_pod() -> None:
    def field(name: str, path: str) -> Object:
        return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}

    found = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "annotations": {"a.b/c": "x"}, "labels": {"l": "y"}},
        "spec": {"nodeName": "gpu-a"},
        "status": {"podIP": "10.0.0.1"},
    }
    env = [
        {"name": "PLAIN", "value": "1"},
        {"name": "EMPTY"},
        field("NOTE", "metadata.annotations['a.b/c']"),
        field("LABEL", "metadata.labels['l']"),
        field("MISSING", "metadata.annotations['none']"),
        field("NAME", "metadata.name"),
        field("NODE", "spec.nodeName"),
        field("IP", "status.podIP"),
        field("HOST", "status.hostIP"),
        {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        {"name": "TWICE", "value": "first"},
        {"name": "TWICE", "value": "last"},
    ]
    assert podstatus.environment(found, Run(container(env=env), "containers")) == {
        "PLAIN": "1",
        "EMPTY": "",
        "NOTE": "x",
        "LABEL": "y",
        "MISSING": "",
        "NAME": "p",
        "NODE": "gpu-a",
        "IP": "10.0.0.1",
        "HOST": "",
        "SECRET": "<not simulated: secretKeyRef>",
        "TWICE": "last",
    }


def _conditions(status: Object) -> dict[str, str]:
    return {found["type"]: found["status"] for found in status["conditions"]}


def test_the_status_of_a_pod_from_its_first_to_its_last_moment() -> None:
    fetch, proxy, main, side = runs = podstatus.runs(
        pod(container(), container("side"), init=[container("fetch"), container("proxy", restartPolicy="Always")])
    )
    tell = partial(podstatus.status, runs, started=NOW, address="10.1.0.1", host="10.0.0.1")

    first = podstatus.status(runs, started=NOW, address="", host="10.0.0.1")
    assert (first["phase"], first["hostIP"], "podIP" in first) == ("Pending", "10.0.0.1", False)
    assert set(_conditions(first).values()) == {"False"}
    assert first["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}

    fetch.start(NOW)
    fetch.end(0, LATER)
    assert _conditions(tell())["Initialized"] == "False", "the sidecar has not started"
    proxy.start(LATER)
    assert (tell()["phase"], _conditions(tell())["Initialized"]) == ("Pending", "True")

    main.start(LATER)
    assert (tell()["phase"], _conditions(tell())["Ready"]) == ("Running", "False")
    side.start(LATER)
    running = tell()
    assert (running["phase"], set(_conditions(running).values())) == ("Running", {"True"})
    assert running["podIPs"] == [{"ip": "10.1.0.1"}]

    main.end(0, LATER)
    side.end(0, LATER)
    assert tell()["phase"] == "Running", "not before the sidecar has ended"
    proxy.end(0, LATER)
    last = tell()
    assert (last["phase"], _conditions(last)["Ready"], _conditions(last)["Initialized"]) == (
        "Succeeded",
        "False",
        "True",
    )
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": LATER, "finishedAt": LATER}
    assert last["containerStatuses"][0]["state"] == {"terminated": ended}


def test_a_failed_container_fails_the_pod_and_one_that_waits_does_not() -> None:
    main, side = runs = podstatus.runs(pod(container(), container("side")))
    for run in runs:
        run.start(NOW)
    main.end(3, LATER)
    side.end(0, LATER)
    assert podstatus.phase(runs) == "Failed"
    main.wait_again()
    assert podstatus.phase(runs) == "Running"
    said = main.status()
    assert (said["state"], said["restartCount"]) == ({"waiting": {"reason": "CrashLoopBackOff"}}, 1)
    assert said["lastState"]["terminated"]["exitCode"] == 3


# The life of a pod


async def _running(dev: DevCluster, api: Api, body: Object, name: str = "p", **annotations: str) -> Object:
    await api.create(api.pods, body)
    assert (await api.bind(name, "gpu-a", **({"annotations": annotations} if annotations else {}))).code == 201
    return await until(dev.server, in_phase(dev.server, api.namespace, name, "Running"))


async def test_a_bound_pod_is_created_runs_and_has_an_address(tmp_path: Path) -> None:
    async with embedded_cluster.cluster(tmp_path) as (_, api):
        created = await api.create(api.pods, pod(container()))
        async with api.watch(api.pods, resourceVersion=created["metadata"]["resourceVersion"]) as watch:
            await api.bind("p", "gpu-b")
            seen = [(await watch.next())[1]["status"] for _ in range(3)]
        assert [status["phase"] for status in seen] == ["Pending", "Pending", "Running"]
        assert seen[1]["containerStatuses"][0]["state"] == {"waiting": {"reason": "ContainerCreating"}}
        running = seen[2]
        assert (running["hostIP"], _conditions(running)["Ready"]) == ("10.0.0.12", "True")
        assert _conditions(running)["PodScheduled"] == "True", "what others said stays"
        assert running["podIP"] == running["podIPs"][0]["ip"]
        assert running["startTime"]


async def test_nobody_runs_a_pod_that_is_not_bound_or_whose_node_does_not_exist(tmp_path: Path) -> None:
    async with embedded_cluster.cluster(tmp_path) as (dev, api):
        for name, node in (("unbound", ""), ("lost", "nowhere"), ("late", "gpu-z")):
            await api.create(api.pods, pod(container(), name=name))
            if node:
                await api.bind(name, node)
        await _running(dev, api, pod(container()))
        found = {obj["metadata"]["name"]: obj["status"]["phase"] for obj in objects(dev.server)}
        assert found == {"p": "Running", "unbound": "Pending", "lost": "Pending", "late": "Pending"}
        await api.create("/api/v1/nodes", {"metadata": {"name": "gpu-z"}})
        await until(dev.server, in_phase(dev.server, api.namespace, "late", "Running"))


async def test_addresses_differ(tmp_path: Path) -> None:
    async with embedded_cluster.cluster(tmp_path) as (dev, api):
        for i in range(6):
            await api.create(api.pods, pod(container(), name=f"p{i}"))
            await api.bind(f"p{i}", ("gpu-a", "gpu-b")[i % 2])
        await until(dev.server, lambda: all(found["status"].get("podIP") for found in objects(dev.server)))
        assert len({found["status"]["podIP"] for found in objects(dev.server)}) == 6


@pytest.mark.parametrize(("command", "phase"), [(["sleep", "0.01"], "Succeeded"), (["false"], "Failed")])
async def test_a_container_ends_as_its_command_says(tmp_path: Path, command: list[str], phase: str) -> None:
    async with embedded_cluster.cluster(tmp_path) as (dev, api):
        await api.create(api.pods, pod(container("main", *command)))
        await api.bind("p", "gpu-a")
        ended = await until(dev.server, in_phase(dev.server, api.namespace, "p", phase))
        assert _conditions(ended["status"])["Ready"] == "False"
        assert ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == int(phase == "Failed")


async def test_a_container_that_crashes_is_started_again(tmp_path: Path) -> None:
    async with embedded_cluster.cluster(tmp_path, restart_seconds=0.01) as (dev, api):
        await api.create(api.pods, pod(container("main", "false"), policy="OnFailure"))
        await api.bind("p", "gpu-a")

        def restarted() -> Object | None:
            found = get(dev.server, api.namespace, "p")
            statuses = found["status"].get("containerStatuses") if found else None
            return found if statuses and statuses[0]["restartCount"] >= 3 else None

        found = await until(dev.server, restarted)
        assert found["status"]["phase"] == "Running"
        assert found["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 1


async def test_whoever_holds_the_kubelet_can_end_a_pod(tmp_path: Path) -> None:
    async with embedded_cluster.cluster(tmp_path) as (dev, api):
        await _running(dev, api, pod(container(), container("side")))
        assert dev.kubelet.finish(api.namespace, "p") == 2
        await until(dev.server, in_phase(dev.server, api.namespace, "p", "Succeeded"))
        assert dev.kubelet.finish(api.namespace, "p", 1) == 0
        assert dev.kubelet.finish(api.namespace, "nobody") == 0
        assert (get(dev.server, api.namespace, "p") or {})["status"]["phase"] == "Succeeded", "an end is an end"


async def test_init_containers_run_one_after_the_other_and_sidecars_beside(tmp_path: Path) -> None:
    init = [container("fetch"), container("proxy", restartPolicy="Always"), container("load", "sleep", "0.01")]
    async with embedded_cluster.cluster(tmp_path) as (dev, api):
        await _running(dev, api, pod(container(), init=init))
        order = [
            event["involvedObject"]["fieldPath"]
            for event in sorted(objects(dev.server, "events"), key=lambda e: int(e["metadata"]["resourceVersion"]))
        ]
        assert order == [f"spec.initContainers{{{name}}}" for name in ("fetch", "proxy", "load")] + [
            "spec.containers{main}"
        ]
        dev.kubelet.finish(api.namespace, "p")
        ended = await until(dev.server, in_phase(dev.server, api.namespace, "p", "Succeeded"))
        states = [list(found["state"]) for found in ended["status"]["initContainerStatuses"]]
        assert states == [["terminated"]] * 3


async def test_a_failed_init_container_fails_the_pod_before_it_starts(tmp_path: Path) -> None:
    async with embedded_cluster.cluster(tmp_path) as (dev, api):
        await api.create(api.pods, pod(container(), init=[container("fetch", "false")]))
        await api.bind("p", "gpu-a")
        failed = await until(dev.server, in_phase(dev.server, api.namespace, "p", "Failed"))
        assert list(failed["status"]["containerStatuses"][0]["state"]) == ["waiting"]


# What people see of it


async def test_the_log_of_a_container_is_what_it_was_told(tmp_path: Path) -> None:
    async with embedded_cluster.cluster(tmp_path) as (dev, api):
        asking = container(resources={"limits": {api_client.GPU_MEM: "3500"}})
        body = pod(asking, container("plain"))
        binding = {f"{keys.VISIBLE_PREFIX}0": "GPU-1", keys.ALIYUN_IDX: "0", keys.ALIYUN_POD: "3500"}
        await _running(dev, api, body, **binding)
        answer = await api.get(f"{api.pods}/p/log", container="main")
        assert (answer.code, answer.headers["Content-Type"]) == (200, "text/plain; charset=utf-8")
        assert answer.body.decode().splitlines() == [
            "ALIYUN_COM_GPU_MEM_CONTAINER=3500",
            "ALIYUN_COM_GPU_MEM_IDX=0",
            "ALIYUN_COM_GPU_MEM_POD=3500",
            "ALIYUN_COM_GPU_MEM_DEV=",
            "NVIDIA_VISIBLE_DEVICES=GPU-1",
        ]
        assert (
            await api.get(f"{api.pods}/p/log", container="main", tailLines=1)
        ).body == b"NVIDIA_VISIBLE_DEVICES=GPU-1\n"
        assert (await api.get(f"{api.pods}/p/log", container="plain")).body == b""


async def test_a_container_bound_without_us_sees_no_gpu(tmp_path: Path) -> None:
    async with embedded_cluster.cluster(tmp_path) as (dev, api):
        await _running(dev, api, pod(container(resources={"limits": {api_client.GPU_MEM: "3500"}})))
        assert b"\nNVIDIA_VISIBLE_DEVICES=\n" in (await api.get(f"{api.pods}/p/log")).body


async def test_an_annotation_that_changes_later_is_not_told_to_a_container_that_runs(tmp_path: Path) -> None:
    async with embedded_cluster.cluster(tmp_path) as (dev, api):
        body = pod(container(resources={"limits": {api_client.GPU_MEM: "3500"}}))
        await _running(dev, api, body, **{f"{keys.VISIBLE_PREFIX}0": "GPU-1"})
        await api.patch(f"{api.pods}/p", {"metadata": {"annotations": {f"{keys.VISIBLE_PREFIX}0": "GPU-2"}}})
        assert b"NVIDIA_VISIBLE_DEVICES=GPU-1\n" in (await api.get(f"{api.pods}/p/log")).body


async def test_a_log_that_is_not_there_is_refused_with_a_sentence(tmp_path: Path) -> None:
    async with embedded_cluster.cluster(tmp_path) as (_, api):
        await api.create(api.pods, pod(container(), container("side")))
        for query, code, sentence in (
            ({"container": "main"}, 400, 'container "main" in pod "p" is waiting to start'),
            ({"container": "other"}, 400, "container other is not valid for pod p"),
            ({}, 400, "a container name must be specified for pod p, choose one of: [main side]"),
        ):
            answer = await api.get(f"{api.pods}/p/log", **query)
            assert (answer.code, answer.message) == (code, sentence)
        assert (await api.get(f"{api.pods}/none/log")).code == 404


async def test_without_a_kubelet_there_are_no_logs(api: Api) -> None:
    await api.create(api.pods, pod(container()))
    assert (await api.get(f"{api.pods}/p/log")).code == 501


# The end


async def test_a_deleted_pod_ends_after_a_moment_and_is_gone(tmp_path: Path) -> None:
    async with embedded_cluster.cluster(tmp_path) as (dev, api):
        await _running(dev, api, pod(container()))
        answer = await api.call("DELETE", f"{api.pods}/p")
        assert answer.body["metadata"]["deletionGracePeriodSeconds"] == 30
        await until(dev.server, lambda: get(dev.server, api.namespace, "p") is None)
        assert "Killing" in [event["reason"] for event in objects(dev.server, "events")]


async def test_a_pod_deleted_before_it_started_never_starts(tmp_path: Path) -> None:
    async with embedded_cluster.cluster(tmp_path, moment=0.3) as (_, api):
        created = await api.create(api.pods, pod(container()))
        async with api.watch(api.pods, resourceVersion=created["metadata"]["resourceVersion"]) as watch:
            await api.bind("p", "gpu-a")
            await api.call("DELETE", f"{api.pods}/p")
            phases = set()
            while (event := await watch.next())[0] != "DELETED":
                phases.add(event[1]["status"]["phase"])
        assert phases == {"Pending"}


async def test_a_pod_of_the_same_name_begins_a_life_of_its_own(tmp_path: Path) -> None:
    async with embedded_cluster.cluster(tmp_path) as (dev, api):
        first = await _running(dev, api, pod(container("main", "sleep", "0.05")))
        await api.call("DELETE", f"{api.pods}/p", {"gracePeriodSeconds": 0})
        second = await _running(dev, api, pod(container()))
        assert second["metadata"]["uid"] != first["metadata"]["uid"]
        await api.create(api.pods, pod(container("main", "sleep", "0.1"), name="clock"))
        await api.bind("clock", "gpu-a")
        await until(dev.server, in_phase(dev.server, api.namespace, "clock", "Succeeded"))
        assert (get(dev.server, api.namespace, "p") or {})["status"]["phase"] == "Running", "not ended by the first one"


async def test_a_pod_with_a_finalizer_ends_but_stays(tmp_path: Path) -> None:
    async with embedded_cluster.cluster(tmp_path) as (dev, api):
        await _running(dev, api, pod(container(), finalizers=["example.com/wait"]))
        await api.call("DELETE", f"{api.pods}/p")

        def ended() -> Object | None:
            found = get(dev.server, api.namespace, "p")
            return found if found and found["metadata"].get("deletionGracePeriodSeconds") == 0 else None

        await until(dev.server, ended)
        await api.patch(f"{api.pods}/p", {"metadata": {"labels": {"a": "b"}}})
        await _running(dev, api, pod(container(), name="other"), name="other")
        assert [event["reason"] for event in objects(dev.server, "events")].count("Killing") == 1
        await api.patch(f"{api.pods}/p", {"metadata": {"finalizers": None}})
        assert get(dev.server, api.namespace, "p") is None
