"""Objects with anything in any place: each is taken, or refused with a Status, and the embedded cluster lives on."""

import copy
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.api import test_api_behaviour_workloads as bodies
from tests.support import embedded_cluster, wait
from tests.support.api_client import MERGE, STRATEGIC, Api, Object

ROUNDS = 20
JUNK: tuple[Any, ...] = (
    *(None, 5, -1, 1.5, True, "x", "", "2026-01-01T00:00:00Z"),
    *([], {}, [5], ["x"], [{}], [None], {"a": 1}, {"x": None}),
)
TIME = "2026-01-01T00:00:00Z"
ENDED = {"exitCode": 1, "reason": "Error", "finishedAt": TIME}
CONTAINER = {
    "name": "main", "image": "x", "command": ["sleep", "0.01"], "ports": [{"containerPort": 80}],
    "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['a']"}}}],
    "resources": {"limits": {"aliyun.com/gpu-mem": "5"}},
}  # fmt: skip
STATUS = {
    "phase": "Running", "startTime": TIME, "podIPs": [{"ip": "10.0.0.1"}],
    "conditions": [{"type": "Ready", "status": "True", "reason": "x", "lastTransitionTime": TIME}],
    "containerStatuses": [{"name": "main", "restartCount": 1, "ready": True, "state": {"terminated": ENDED}}],
}  # fmt: skip


def _objects(api: Api) -> dict[str, Object]:
    """By the path where they are created."""
    sidecar = CONTAINER | {"name": "side", "restartPolicy": "Always"}
    spec = {"nodeName": "gpu-a", "restartPolicy": "OnFailure", "containers": [CONTAINER], "initContainers": [sidecar]}
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u", "controller": True}
    metadata = {"name": "p", "labels": {"a": "b"}, "annotations": {"a": "b"}, "ownerReferences": [owner]}
    web, batch = bodies.deployment(replicas=2), bodies.job(parallelism=2, completions=2)
    web["spec"]["template"]["spec"] = spec | {"restartPolicy": "Always"}
    web["spec"]["strategy"] = {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}}
    batch["spec"]["template"]["spec"] = spec
    return {api.pods: {"metadata": metadata, "spec": spec}, bodies.deployments(api): web, bodies.jobs(api): batch}


def _places(obj: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key, value in obj.items() if isinstance(obj, dict) else enumerate(obj) if isinstance(obj, list) else ():
        yield (*here, key)
        yield from _places(value, (*here, key))


def _odd(obj: Object, dice: random.Random) -> Object:
    """The object with junk in one place, or in two."""
    odd = copy.deepcopy(obj)
    for _ in range(dice.randint(1, 2)):
        *way, last = dice.choice(list(_places(odd)))
        at: Any = odd
        for step in way:
            at = at[step]
        at[last] = copy.deepcopy(dice.choice(JUNK))
    return odd


@pytest.mark.parametrize("seed", range(2))
async def test_no_object_is_too_odd(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    taken = 0
    async with embedded_cluster.cluster(tmp_path) as (dev, api):
        for i in range(ROUNDS):
            for path, obj in _objects(api).items():
                obj["metadata"]["name"] = name = f"odd-{i}"
                answers = [await api.call("POST", path, _odd(obj, dice)), await api.call("POST", path, obj)]
                how = dice.choice((MERGE, STRATEGIC))
                answers.append(await api.patch(f"{path}/{name}/status", {"status": _odd(STATUS, dice)}, how))
                answers.append(await api.patch(f"{path}/{name}", _odd(obj, dice), how))
                answers.append(await api.call("DELETE", f"{path}/{name}", {"propagationPolicy": "Foreground"}))
                for answer in answers:
                    taken += answer.code < 300
                    assert answer.code < 300 or (answer.body["kind"] == "Status" and answer.code < 500), answer.body
        assert taken > ROUNDS
        await api.create(bodies.deployments(api), bodies.deployment(replicas=1))
        await wait.until(dev.server, lambda: embedded_cluster.names(dev.server, app="web"))
