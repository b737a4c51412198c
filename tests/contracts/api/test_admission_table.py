"""The pods of admission_pods.yaml through the stand-in API server and through the webhook's answers: the same comes
out. `tests/e2e/test_webhook.py` sends them to a real API server, with policies and with the webhook."""

import base64
import collections
import copy
import re
from typing import Any

import msgspec
import pytest

from gpushare.core.admission import validation
from gpushare.core.facts import names, objects
from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.webhook import reviews
from tests.contracts.api import admission_table
from tests.contracts.api.admission_table import MODES, REFUSED, TABLE, Mode
from tests.support import api_client
from tests.support.api_client import Object

FIELDS = ("containers", "initContainers")
REFERENCE = re.compile(r"metadata\.annotations\['(gpushare\.io/visible-[^']*)'\]")


async def admitted(row: Object, mode: Mode) -> Object:
    """By the stand-in."""
    async with (
        ApiServer(pin_directly=True, pin_nvidia=mode.nvidia, void_unasked=mode.void) as server,
        api_client.connect(server.url) as api,
    ):
        await api.create("/api/v1/namespaces", {"metadata": {"name": "team", "labels": row.get("labels", {})}})
        return await api.create("/api/v1/namespaces/team/pods", admission_table.pod(row, "p"))


def answered(pod: Object, row: Object, mode: Mode) -> Object:
    """By the webhook, asked as an API server asks it."""
    labels = row.get("labels", {})
    paths = [reviews.pin]
    if mode.nvidia and labels.get("gpushare.io/nvidia-gpu") != "leave":
        paths.append(reviews.pin_nvidia)
    if mode.void and labels.get("gpushare.io/unasked") != "leave":
        paths.append(reviews.void)
    for path in paths:
        review = {"request": {"uid": "u", "resource": {"resource": "pods"}, "object": pod}}
        response = msgspec.json.decode(path(msgspec.json.encode(review)))["response"]
        assert (response["uid"], response["allowed"]) == ("u", True)
        pod = patched(pod, msgspec.json.decode(base64.b64decode(response.get("patch", "W10="))))
    return pod


def patched(pod: Object, operations: list[Object]) -> Object:
    """RFC 6902, as far as `add` to lists and objects."""
    pod = copy.deepcopy(pod)
    for operation in operations:
        assert operation["op"] == "add"
        *path, last = operation["path"].strip("/").split("/")
        at: Any = pod
        for step in path:
            at = at[int(step)] if isinstance(at, list) else at[step]
        if last == "-":
            at.append(operation["value"])
        else:
            at[last] = operation["value"]
    return pod


def test_the_table_is_large_and_no_row_comes_twice() -> None:
    assert len(TABLE) >= 60
    assert len({admission_table.name(row) for row in TABLE}) == len(TABLE)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("row", TABLE, ids=[row["name"] for row in TABLE])
async def test_webhook_and_stand_in_make_the_same_of_a_pod(row: Object, mode: str) -> None:
    made = await admitted(row, MODES[mode])
    sent = admission_table.pod(row, "p")
    assert admission_table.contents(answered(sent, row, MODES[mode])) == admission_table.contents(made)
    again = answered(made, row, MODES[mode])
    assert again == made, "pinned twice"


@pytest.mark.parametrize("row", TABLE, ids=[row["name"] for row in TABLE])
def test_no_two_containers_that_ask_share_an_annotation_of_ours(row: Object) -> None:
    made = answered(admission_table.pod(row, "p"), row, MODES["pin nvidia.com/gpu, too"])
    asking = [
        env[-1]["valueFrom"]["fieldRef"]["fieldPath"]
        for env in (one.get("env") or [] for field in FIELDS for one in made["spec"].get(field, ()))
        if env and env[-1]["name"] == names.VISIBLE_DEVICES and "valueFrom" in env[-1]
    ]
    ours = [found[1] for path in asking if (found := REFERENCE.fullmatch(path))]
    assert [key for key, times in collections.Counter(ours).items() if times > 1] == []


def test_many_runs_with_containers_added_in_front_never_give_an_annotation_twice() -> None:
    """More than there can be: policies and webhooks, of two kinds, each asked once more if something changed."""
    pod: Object = {"spec": {"containers": []}}
    for run in range(5):
        for resource in (names.GPU_MEM, names.NVIDIA_GPU):
            late = {"name": f"c{run}-{resource}", "resources": {"limits": {resource: "1"}}}
            pod["spec"]["containers"].insert(0, late)
        pod = answered(pod, {}, Mode(nvidia=True))
    paths = [one["env"][-1]["valueFrom"]["fieldRef"]["fieldPath"] for one in pod["spec"]["containers"]]
    assert len(set(paths)) == len(paths) == 10


@pytest.mark.parametrize("row", REFUSED, ids=[row["name"] for row in REFUSED])
async def test_the_webhook_says_the_sentence_of_the_core_at_submit(row: Object) -> None:
    async with ApiServer(pin_directly=True) as server, api_client.connect(server.url) as api:
        pod = await api.create(api.pods, admission_table.pod(row, "p"))
    core = validation.never(msgspec.convert(pod, objects.Pod))
    assert core.startswith(row.get("says", "")), core
    assert bool(core) is ("says" in row), core
    review = {"request": {"uid": "u", "resource": {"resource": "pods"}, "object": pod}}
    response = msgspec.json.decode(reviews.validated(msgspec.json.encode(review), reviews.On(), None))["response"]
    assert response["allowed"] is not bool(core)
    assert response.get("status", {}).get("message", "") == core
