"""What a new pod's containers are told, if the server does as the shipped admission policy. `tests/e2e/test_kubectl`
runs the very same cases against that policy on a real API server."""

import copy
from typing import Any

import pytest

from gpushare.devcluster.apiserver.server import ApiServer
from tests.support import api_client
from tests.support.api_client import GPU_MEM, Object

GPU_COUNT = "aliyun.com/gpu-count"
IDX, POD, DEV = (f"ALIYUN_COM_GPU_MEM_{word}" for word in ("IDX", "POD", "DEV"))
OURS = [f"{name}<{name}" for name in (IDX, POD, DEV)]


def container(name: str, env: list[Object] | None = None, **limits: int | str) -> Object:
    """`mem` and `count` are what it asks for."""
    resources = {"mem": GPU_MEM, "count": GPU_COUNT, "cpu": "cpu"}
    made: Object = {"name": name, "image": "busybox"}
    if limits:
        made["resources"] = {"limits": {resources[what]: amount for what, amount in limits.items()}}
    return made if env is None else made | {"env": env}


def told(amount: int | None, annotation: str) -> list[str]:
    """The env of a container that asks: NAME=value, or NAME<annotation it is taken from."""
    own = [] if amount is None else [f"ALIYUN_COM_GPU_MEM_CONTAINER={amount}"]
    return [*own, *OURS, f"NVIDIA_VISIBLE_DEVICES<gpushare.io/{annotation}"]


def reference(annotation: str, name: str = "NVIDIA_VISIBLE_DEVICES") -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{annotation}']"}}}


# What is sent: containers, init containers. What comes of it: the env of each container, by name.
CASES: dict[str, tuple[list[Object], list[Object], dict[str, list[str]]]] = {
    "one that asks": ([container("main", mem=3500)], [], {"main": told(3500, "visible-0")}),
    "one that does not": ([container("main", cpu="1")], [], {"main": []}),
    "an amount that is rewritten is told as a number": (
        [container("main", mem=7000), container("much", mem="4Gi")],
        [],
        {"main": told(7000, "visible-0"), "much": told(4294967296, "visible-1")},
    ),
    "nothing is an amount too": ([container("main", mem=0)], [], {"main": told(0, "visible-0")}),
    "whole GPUs have no amount": ([container("main", count=2)], [], {"main": told(None, "visible-0")}),
    "numbers are positions, also of those that do not ask": (
        [container("plain"), container("main", mem=1)],
        [container("before"), container("fetch", mem=2)],
        {"plain": [], "main": told(1, "visible-1"), "before": [], "fetch": told(2, "visible-init-1")},
    ),
    "a sidecar is an init container": (
        [container("main", mem=1)],
        [container("proxy", mem=2) | {"restartPolicy": "Always"}],
        {"main": told(1, "visible-0"), "proxy": told(2, "visible-init-0")},
    ),
    "what a tenant says comes before": (
        [container("main", [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}], mem=1)],
        [],
        {"main": ["NVIDIA_VISIBLE_DEVICES=all", *told(1, "visible-0")]},
    ),
    "who is pinned already stays so, and a number that is in use is not given again": (
        [container("late", mem=2), container("main", [reference("gpushare.io/visible-0")], mem=1)],
        [container("fetch", mem=3)],
        {
            "late": told(2, "visible-10000"),
            "main": ["NVIDIA_VISIBLE_DEVICES<gpushare.io/visible-0"],
            "fetch": told(3, "visible-init-0"),
        },
    ),
    "a reference that is not last does not count": (
        [container("main", [reference("gpushare.io/visible-0"), {"name": "A", "value": "b"}], mem=1)],
        [],
        {"main": ["NVIDIA_VISIBLE_DEVICES<gpushare.io/visible-0", "A=b", *told(1, "visible-0")]},
    ),
    "nor does one to an annotation of somebody else": (
        [container("main", [reference("example.com/visible-0")], mem=1)],
        [],
        {"main": ["NVIDIA_VISIBLE_DEVICES<example.com/visible-0", *told(1, "visible-0")]},
    ),
}


def pod(apps: list[Object], inits: list[Object], **metadata: Any) -> Object:
    spec: Object = {"schedulerName": "nobody", "containers": copy.deepcopy(apps)}
    if inits:
        spec["initContainers"] = copy.deepcopy(inits)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def environments(pod: Object) -> dict[str, list[str]]:
    """As the cases write them."""
    return {
        found["name"]: [_entry(entry) for entry in found.get("env") or []]
        for found in (*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or []))
    }


def _entry(entry: Object) -> str:
    if "valueFrom" not in entry:
        return f"{entry['name']}={entry['value']}"
    path = entry["valueFrom"]["fieldRef"]["fieldPath"]
    return f"{entry['name']}<{path.removeprefix('metadata.annotations[').strip(chr(39) + ']')}"


@pytest.mark.parametrize("case", CASES)
async def test_containers_are_told_what_the_policy_tells_them(case: str) -> None:
    apps, inits, expected = CASES[case]
    async with ApiServer(pin_directly=True) as server, api_client.connect(server.url) as api:
        assert environments(await api.create(api.pods, pod(apps, inits, name="p"))) == expected


async def test_unless_asked_the_server_changes_no_pod(api: api_client.Api) -> None:
    created = await api.create(api.pods, pod([container("main", mem=3500)], [], name="p"))
    assert environments(created) == {"main": []}


async def test_a_pod_with_very_many_containers_is_left_as_it_is() -> None:
    many = [container(f"c{i}", mem=1) for i in range(501)]
    async with ApiServer(pin_directly=True) as server, api_client.connect(server.url) as api:
        left = await api.create(api.pods, pod(many, [], name="many"))
        assert all(env == [] for env in environments(left).values())
        just = await api.create(api.pods, pod(many[:500], [], name="just"))
        assert environments(just)["c499"] == told(1, "visible-499")


async def test_only_new_pods_are_changed_not_old_ones() -> None:
    async with ApiServer(pin_directly=True) as server, api_client.connect(server.url) as api:
        created = await api.create(api.pods, pod([container("main", mem=1)], [], name="p"))
        again = await api.patch(f"{api.pods}/p", {"metadata": {"labels": {"a": "b"}}})
        assert again.body["spec"] == created["spec"]


async def test_what_is_wrong_is_refused_with_and_without_the_policy() -> None:
    async with ApiServer(pin_directly=True) as server, api_client.connect(server.url) as api:
        assert (await api.call("POST", api.pods, pod([], [], name="p"))).code == 422
        fraction = await api.call("POST", api.pods, pod([container("main", mem="1.5")], [], name="p"))
        assert (fraction.code, "must be an integer" in fraction.message) == (422, True)
