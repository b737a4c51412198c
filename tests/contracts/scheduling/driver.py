"""Runs one scenario of scheduling: a cluster, pods, what happens to them, and what is expected of the scheduler.

The same scenarios run against the stand-in for kube-scheduler (`tests/devcluster/scheduler/test_scheduler.py`) and
against kube-scheduler itself (`tests/e2e/test_scheduling.py`), both with the real extender, so that the stand-in stays
honest. Nodes and pods are told in the words of `tests/support/objects.py`, and these: nodes have `cpu`, pods have
`cpu`, `gates` and `scheduler`. Labels, taints and cordons are put on nodes that are there already.

Pods of `there` exist before the scheduler starts; those of `pods` come one by one, each when the one before it was
decided. A step is at most one deed (the methods of `Deeds`) with any number of expectations (`checks.py`), which are
waited for. `since: {version: "1.27", why: ...}` is said of what older kube-schedulers cannot do.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.contracts.scheduling import checks
from tests.contracts.scheduling.cluster_under_test import ClusterUnderTest, until_decided
from tests.e2e.harness import objects as real_objects
from tests.support import objects, yaml_text
from tests.support.objects import Object

SCENARIO_WORDS = {"name", "since", "nodes", "there", "pods", "steps", *checks.WORDS}
NODE_WORDS = ("labels", "taints", "cordoned", "cpu")
POD_WORDS = ("cpu", "gates", "scheduler")
SCENARIOS = [
    scenario
    for file in sorted(Path(__file__).parent.glob("*.yaml"))
    for scenario in yaml_text.documents(file.read_text())
]


def name_of(scenario: Object) -> str:
    return str(scenario["name"])


def applies(scenario: Object, version: tuple[int, int]) -> bool:
    """Whether kube-scheduler of this version can do what the scenario expects."""
    return "since" not in scenario or version >= checks.number(scenario["since"]["version"])


async def run(under_test: ClusterUnderTest, scenario: Object) -> None:
    """Fails with what was expected and what came instead."""
    objects.known(scenario, SCENARIO_WORDS, "scenario")
    deeds = Deeds(under_test)
    await deeds.node(scenario.get("nodes", {}))
    for words in scenario.get("there", []):
        await deeds.make_pod(words)
    async with under_test.scheduling():
        for words in scenario.get("pods", []):
            await deeds.pod(words)
        for number, step in enumerate(scenario.get("steps", []), 1):
            try:
                await _step(under_test, deeds, step)
            except AssertionError as error:
                raise AssertionError(f"step {number} {step}: {error}") from error
        await checks.check(under_test, scenario)


async def _step(under_test: ClusterUnderTest, deeds: "Deeds", step: Object) -> None:
    words = [word for word in step if word not in checks.WORDS]
    assert len(words) <= 1, f"at most one deed a step, not {words}"
    for word in words:
        assert word in DEEDS, f"unknown deed {word!r}; known are {DEEDS}"
        deed: Callable[[Any], Awaitable[None]] = getattr(deeds, word)
        await deed(step[word])
    await checks.check(under_test, step)


class Deeds:
    """What can happen. Each public method but `make_pod` is a word of `steps`."""

    def __init__(self, under_test: ClusterUnderTest) -> None:
        self._stage, self._api = under_test, under_test.api

    async def pod(self, words: Object) -> None:
        """A pod is created, and decided."""
        await self.make_pod(words)
        if "scheduler" not in words:
            await until_decided(self._stage, words["name"])

    async def make_pod(self, words: Object) -> None:
        ours = {word: words[word] for word in POD_WORDS if word in words}
        made = real_objects.pod(**{word: value for word, value in words.items() if word not in POD_WORDS})
        spec = made["spec"]
        if "cpu" in ours:
            spec["containers"][0]["resources"]["requests"] = {"cpu": str(ours["cpu"])}
        spec["schedulingGates"] = [{"name": gate} for gate in ours.get("gates", [])]
        spec["schedulerName"] = ours.get("scheduler", spec["schedulerName"])
        await self._stage.create_pod(made, words.get("priority", 0))

    async def node(self, nodes: Object) -> None:
        """Nodes come."""
        for name, words in nodes.items():
            given = words or {}
            plain = {word: value for word, value in given.items() if word not in NODE_WORDS}
            self._stage.nodes[name] = await self._stage.create_node(plain)
            if "labels" in given:
                await self.label({name: given["labels"]})
            if "taints" in given:
                await self.taint({name: given["taints"]})
            if given.get("cordoned"):
                await self.cordon(name)
            if "cpu" in given:
                cpu = {"cpu": str(given["cpu"])}
                await self._patch_node(name, {"status": {"capacity": cpu, "allocatable": cpu}}, "/status")

    async def label(self, labels: Object) -> None:
        for node, given in labels.items():
            await self._patch_node(node, {"metadata": {"labels": given}})

    async def taint(self, taints: Object) -> None:
        for node, given in taints.items():
            await self._patch_node(node, {"spec": {"taints": [objects.taint(text) for text in given]}})

    async def untaint(self, node: str) -> None:
        await self._patch_node(node, {"spec": {"taints": None}})

    async def cordon(self, node: str) -> None:
        await self._patch_node(node, {"spec": {"unschedulable": True}})

    async def uncordon(self, node: str) -> None:
        await self._patch_node(node, {"spec": {"unschedulable": None}})

    async def publish(self, nodes: Object) -> None:
        """Nodes say anew what GPUs they have, and how these are."""
        for node, words in nodes.items():
            made = objects.node(self._stage.nodes[node], words)
            await self._patch_node(node, {"metadata": {"annotations": made["metadata"]["annotations"]}})

    async def delete(self, name: str) -> None:
        """A pod is deleted, and gone."""
        answer = await self._api.call("DELETE", f"{self._api.pods}/{name}", {"gracePeriodSeconds": 0})
        assert answer.code == 200, answer.body

    async def end(self, name: str) -> None:
        """A pod's containers have ended; the pod stays to be read."""
        await self._patch(f"{self._api.pods}/{name}/status", {"status": {"phase": "Succeeded"}})

    async def ungate(self, name: str) -> None:
        await self._patch(f"{self._api.pods}/{name}", {"spec": {"schedulingGates": None}})

    async def tolerate(self, pods: Object) -> None:
        """Pods get more tolerations."""
        for name, added in pods.items():
            have = (await self._api.get(f"{self._api.pods}/{name}")).body["spec"].get("tolerations") or []
            tolerations = [*have, *map(objects.toleration, added)]
            await self._patch(f"{self._api.pods}/{name}", {"spec": {"tolerations": tolerations}})

    async def _patch_node(self, node: str, patch: Object, subresource: str = "") -> None:
        await self._patch(f"/api/v1/nodes/{self._stage.nodes[node]}{subresource}", patch)

    async def _patch(self, path: str, patch: Object) -> None:
        answer = await self._api.patch(path, patch)
        assert answer.code == 200, answer.body


DEEDS = [word for word in vars(Deeds) if not word.startswith("_") and word != "make_pod"]
