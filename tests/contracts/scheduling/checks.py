"""What a scenario of scheduling can expect, at its end or after any step. All of it is what people can see.

* `expect: {pod: a}`, or `{node: a, main: 0, helper: [0, 1]}` with the GPUs of its containers;
  `{waits: sentence}`: its condition begins with that, in kube-scheduler's words; `{gated: true}`; `{untouched: true}`.
  Where its words changed, `waits: {"1.19": sentence, "1.34": sentence}`: from which version on it says which.
* `events: {pod: [FailedScheduling, Scheduled]}`: the reasons of the scheduler's own events about it.
* `filters: 0`: how often the extender was asked.
"""

import asyncio
import json
import time

from gpushare.core.facts import names
from tests.contracts.scheduling.cluster_under_test import PATIENCE, ClusterUnderTest, condition
from tests.support import extender_process, pod_watch
from tests.support.objects import Object, known

WORDS = {"expect", "events", "filters"}
SCHEDULER = "default-scheduler"


async def check(under_test: ClusterUnderTest, wanted: Object) -> None:
    for name, expected in wanted.get("expect", {}).items():
        await _expect(under_test, name, expected if isinstance(expected, dict) else {"node": expected})
    for name, reasons in wanted.get("events", {}).items():
        await _events(under_test, name, reasons)
    if "filters" in wanted:
        asked = await _filters(under_test.extender_port)
        assert asked == wanted["filters"], f"the extender was asked {asked:.0f} times"


async def _expect(under_test: ClusterUnderTest, name: str, expected: Object) -> None:
    if "node" in expected:
        node = under_test.nodes[expected["node"]]
        await under_test.watch.until(
            f"{name} bound", lambda: bool(pod_watch.node_of(under_test.watch.pods.get(name, {}))), PATIENCE
        )
        pod = under_test.watch.pods[name]
        gpus = {word: [gpu] if isinstance(gpu, int) else gpu for word, gpu in expected.items() if word != "node"}
        have = {container: chosen for container, chosen in _gpus(pod).items() if gpus and chosen}
        assert (pod_watch.node_of(pod), have) == (node, gpus), f"{name}: on {pod_watch.node_of(pod)}, GPUs {_gpus(pod)}"
        return
    known(expected, {"waits", "gated", "untouched"}, f"expect {name}")
    if "waits" in expected:
        await _until_refused(under_test, name, "Unschedulable", in_words_of(under_test.version, expected["waits"]))
    elif "gated" in expected:
        await _until_refused(
            under_test, name, "SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates"
        )
    else:
        pod = under_test.watch.pods[name]
        assert (pod_watch.node_of(pod), condition(pod)) == ("", {}), name


async def _until_refused(under_test: ClusterUnderTest, name: str, reason: str, sentence: str) -> None:
    """kube-scheduler may add what preemption thinks of it."""

    def said() -> bool:
        told = condition(under_test.watch.pods.get(name, {}))
        message = told.get("message", "")
        return told.get("reason") == reason and (message == sentence or message.startswith(f"{sentence} "))

    await under_test.watch.until(f"{name}: {sentence}", said, PATIENCE)


def in_words_of(version: tuple[int, int], said: str | dict[str, str]) -> str:
    """The sentence of the latest change up to this version."""
    if isinstance(said, str):
        return said
    changes = {number(since): sentence for since, sentence in said.items()}
    return changes[max(since for since in changes if since <= version)]


def number(version: str) -> tuple[int, int]:
    major, minor = version.split(".")
    return int(major), int(minor)


def _gpus(pod: Object) -> dict[str, list[int]]:
    """Which GPUs each container has."""
    order = [*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or [])]
    allocation = json.loads((pod["metadata"].get("annotations") or {}).get(names.ALLOCATION, "{}"))
    return {order[int(i)]["name"]: sorted(int(gpu) for gpu in amounts) for i, amounts in allocation.items()}


async def _events(under_test: ClusterUnderTest, name: str, reasons: list[str]) -> None:
    patience_ends = time.monotonic() + PATIENCE
    while True:
        answer = await under_test.api.get(under_test.api.events, fieldSelector=f"involvedObject.name={name}")
        told = {event["reason"] for event in answer.body["items"] if event["reportingComponent"] == SCHEDULER}
        if told == set(reasons):
            return
        assert time.monotonic() < patience_ends, f"events of {name}: {sorted(told)}, expected {reasons}"
        await asyncio.sleep(0.05)


async def _filters(port: int) -> float:
    asker = extender_process.Client(port)
    try:
        counts = await asker.metrics()
        return sum(counts[f'gpushare_request_seconds_count{{verb="{verb}"}}'] for verb in ("choose", "filter"))
    finally:
        await asker.close()
