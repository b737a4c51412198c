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
from tests.contracts.scheduling.stage import PATIENCE, Stage, condition
from tests.e2e.harness import sight
from tests.support import processes
from tests.support.objects import Object, known

WORDS = {"expect", "events", "filters"}
SCHEDULER = "default-scheduler"


async def check(stage: Stage, wanted: Object) -> None:
    for name, expected in wanted.get("expect", {}).items():
        await _expect(stage, name, expected if isinstance(expected, dict) else {"node": expected})
    for name, reasons in wanted.get("events", {}).items():
        await _events(stage, name, reasons)
    if "filters" in wanted:
        asked = await _filters(stage.extender_port)
        assert asked == wanted["filters"], f"the extender was asked {asked:.0f} times"


async def _expect(stage: Stage, name: str, expected: Object) -> None:
    if "node" in expected:
        node = stage.nodes[expected["node"]]
        await stage.sight.until(f"{name} bound", lambda: bool(sight.node_of(stage.sight.pods.get(name, {}))), PATIENCE)
        pod = stage.sight.pods[name]
        gpus = {word: [gpu] if isinstance(gpu, int) else gpu for word, gpu in expected.items() if word != "node"}
        have = {container: chosen for container, chosen in _gpus(pod).items() if gpus and chosen}
        assert (sight.node_of(pod), have) == (node, gpus), f"{name}: on {sight.node_of(pod)}, GPUs {_gpus(pod)}"
        return
    known(expected, {"waits", "gated", "untouched"}, f"expect {name}")
    if "waits" in expected:
        await _until_said(stage, name, "Unschedulable", in_words_of(stage.version, expected["waits"]))
    elif "gated" in expected:
        await _until_said(stage, name, "SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates")
    else:
        pod = stage.sight.pods[name]
        assert (sight.node_of(pod), condition(pod)) == ("", {}), name


async def _until_said(stage: Stage, name: str, reason: str, sentence: str) -> None:
    """kube-scheduler may add what preemption thinks of it."""

    def said() -> bool:
        told = condition(stage.sight.pods.get(name, {}))
        message = told.get("message", "")
        return told.get("reason") == reason and (message == sentence or message.startswith(f"{sentence} "))

    await stage.sight.until(f"{name}: {sentence}", said, PATIENCE)


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


async def _events(stage: Stage, name: str, reasons: list[str]) -> None:
    patience_ends = time.monotonic() + PATIENCE
    while True:
        answer = await stage.api.get(stage.api.events, fieldSelector=f"involvedObject.name={name}")
        told = {event["reason"] for event in answer.body["items"] if event["reportingComponent"] == SCHEDULER}
        if told == set(reasons):
            return
        assert time.monotonic() < patience_ends, f"events of {name}: {sorted(told)}, expected {reasons}"
        await asyncio.sleep(0.05)


async def _filters(port: int) -> float:
    asker = processes.Client(port)
    try:
        counts = await asker.metrics()
        return sum(counts[f'gpushare_request_seconds_count{{verb="{verb}"}}'] for verb in ("choose", "filter"))
    finally:
        await asker.close()
