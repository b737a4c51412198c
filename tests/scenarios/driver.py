"""Runs one scenario: a cluster, pods, what happens to them, and what is expected of it.

The short form is `nodes`, `pods` and `expect`: pods come one after the other, each is asked about and bound. What goes
on over time is told in `steps`, each with one deed (the methods of `Deeds`) and any number of checks (`checks.py`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from gpushare.core.facts import names
from tests.scenarios import checks, cluster
from tests.scenarios.checks import Outcome
from tests.scenarios.world import World
from tests.support import objects
from tests.support.objects import Object

SCENARIO_WORDS = {"name", "covers", "broken", "extender", "nodes", "pods", "steps", "shrinks", *checks.WORDS}
EXTENDER_WORDS = {"policy", "unit"}
OPTIONS = {"among", "form", "stale", "why"}  # beside a deed; `why` is for the reader


def run(scenario: Object) -> None:
    """Fails with what was expected and what came instead."""
    objects.known(scenario, SCENARIO_WORDS, "scenario")
    with asyncio.Runner(loop_factory=cluster.Loop) as runner:
        runner.run(_run(scenario))


async def _run(scenario: Object) -> None:
    extender = scenario.get("extender", {})
    objects.known(extender, EXTENDER_WORDS, "extender")
    world = World(extender.get("policy", "binpack"), extender.get("unit"))
    for name, given in scenario.get("nodes", {}).items():
        world.api.nodes[name] = objects.node(name, given or {})
    world.start()
    deeds = Deeds(world, scenario.get("nodes", {}))
    try:
        for given in scenario.get("pods", []):
            deeds.pod(given)
            # Pods of the short form are scheduled; with steps, they are only there from the beginning.
            if "steps" not in scenario and not given.get("node"):
                for made in objects.pods(given):
                    await deeds.schedule(made["metadata"]["name"])
                    _check_always(world, scenario)
        for number, step in enumerate(scenario.get("steps", []), 1):
            try:
                await _step(deeds, step)
                _check_always(world, scenario)
            except AssertionError as error:
                raise AssertionError(f"step {number} {step}: {error}") from error
        await checks.check(world, deeds.outcomes, None, {k: v for k, v in scenario.items() if k in checks.WORDS})
    finally:
        await world.stop()


def _check_always(world: World, scenario: Object) -> None:
    world.check_books()
    if not scenario.get("shrinks"):  # a GPU that became smaller under its pods: nobody can help that
        world.check_granted()


async def _step(deeds: "Deeds", step: Object) -> None:
    words = [word for word in step if word not in OPTIONS and word not in checks.WORDS]
    assert len(words) <= 1, f"one deed a step, not {words}"
    deeds.options = {word: step[word] for word in OPTIONS if word in step}
    deeds.answer = None
    for word in words:
        assert word in DEEDS, f"unknown deed {word!r}; known are {DEEDS}"
        deed: Callable[[Any], Awaitable[None] | None] = getattr(deeds, word.replace("-", "_"))
        waited = deed(step[word])
        if waited is not None:
            await waited
    await deeds.world.tick()
    await checks.check(deeds.world, deeds.outcomes, deeds.answer, {k: v for k, v in step.items() if k in checks.WORDS})


class Deeds:
    """What can happen in a scenario. Each public method is a word of `steps`."""

    def __init__(self, world: World, nodes: Object) -> None:
        self.world, self.api = world, world.api
        self.options: Object = {}
        self.outcomes: dict[str, Outcome] = {}
        self.answer: Any = None
        self._given: dict[str, Object] = {}
        self._replaced: dict[str, Object] = {}
        self._nodes: dict[str, Object] = {name: dict(given or {}) for name, given in nodes.items()}

    # The cluster changes

    def pod(self, given: Object) -> None:
        """A pod is created."""
        for made in objects.pods(given):
            self._given[made["metadata"]["name"]] = given
            self.api.put_pod(made)

    def pods(self, given: list[Object]) -> None:
        for one in given:
            self.pod(one)

    def recreate(self, name: str) -> None:
        """A pod is deleted, and another takes its name at once, as a StatefulSet does."""
        old = self._find(name)
        self.api.drop_pod(old)
        self._replaced[name] = old
        new = objects.pod({**self._given[name], "name": name, "uid": f"{old['metadata']['uid']}-again"})
        self.api.put_pod(new)
        self.outcomes.pop(name, None)

    def change(self, given: Object) -> None:
        """Somebody patches pods: annotations (null removes one), phase, nominated, waits, node."""
        for name, changes in given.items():
            objects.known(changes, {"annotations", "phase", "reason", "nominated", "waits", "node"}, f"change {name}")
            pod = self._find(name)
            objects.change(pod, changes)
            annotations = pod["metadata"]["annotations"] | changes.get("annotations", {})
            pod["metadata"]["annotations"] = {k: str(v) for k, v in annotations.items() if v is not None}
            self.api.put_pod(pod)

    def run(self, pods: str | list[str]) -> None:
        """Containers start."""
        for name in _each(pods):
            self.change({name: {"phase": "Running", "annotations": {names.ALIYUN_ASSIGNED: "true"}}})

    def end(self, pods: str | list[str]) -> None:
        """Containers have ended by themselves; the pods stay to be read."""
        for name in _each(pods):
            self.change({name: {"phase": "Succeeded"}})

    def fail(self, given: Object) -> None:
        """Containers have failed, for the reason given."""
        for name, reason in given.items():
            self.change({name: {"phase": "Failed", "reason": reason}})

    def delete(self, pods: str | list[str]) -> None:
        """Deletion is asked for; containers still run."""
        for name in _each(pods):
            pod = self._find(name)
            objects.change(pod, {"deleting": True})
            self.api.put_pod(pod)

    def gone(self, pods: str | list[str]) -> None:
        """The pod is no more."""
        for name in _each(pods):
            self.api.drop_pod(self._find(name))

    def gone_all(self, pods: str | list[str]) -> None:
        """As `gone`, with patterns."""
        self.gone(self._matching(pods))

    def node(self, given: Object) -> None:
        """Nodes appear, or change in what is named."""
        for name, changes in given.items():
            self._nodes[name] = {k: v for k, v in (self._nodes.get(name, {}) | changes).items() if v is not None}
            self.api.put_node(objects.node(name, self._nodes[name]))

    def no_node(self, name: str) -> None:
        self.api.drop_node(name)

    def configmap(self, given: Object) -> None:
        """Lists the unhealthy GPUs of nodes; null: the ConfigMap goes."""
        for node, listed in given.items():
            name = names.UNHEALTHY_PREFIX + node
            if listed is None:
                self.api.drop_map(name)
            else:
                self.api.put_map(name, listed if isinstance(listed, dict) else {names.UNHEALTHY_KEY: listed})

    def api_faults(self, faults: str | list[str]) -> None:
        """What becomes of the next writes, one each."""
        self.api.faults.extend(_each(faults))

    def back_up(self, _: bool) -> None:
        self.api.back_up()

    def restore(self, _: bool) -> None:
        """etcd is put back to what was copied. The extender learns of it with the next `relist`."""
        self.world.watch, self.world.restored = "lost", True
        self.api.restore()

    def deaf(self, deaf: bool) -> None:
        """Wake-ups do not get through."""
        self.api.deaf = deaf

    # The extender's own life

    def watch(self, how: str) -> None:
        self.world.set_watch(how)

    def relist(self, how: bool | str) -> None:
        """`copy`: the list was read when the cluster was copied, and comes only now."""
        self.world.watch = "running"
        self.world.relist(self.api.copied_pods() if how == "copy" else None)

    async def restart(self, _: bool) -> None:
        await self.world.stop()
        self.world.start()

    def ready(self, ready: bool) -> None:
        self.world.ready = ready

    async def wait(self, seconds: float) -> None:
        await self.world.wait(seconds)

    # The scheduler asks

    def filter(self, name: str) -> None:
        pod = self._sent(name)
        self.answer = self.world.filter(self.options.get("form", "names"), pod, self._among())
        self.outcomes[name] = Outcome.of(self.answer)

    def choose(self, name: str) -> None:
        self.answer = self.world.filter(self.options.get("form", "names"), self._sent(name), self._among(), "choose")
        self.outcomes[name] = Outcome.of(self.answer)

    def prioritize(self, name: str) -> None:
        self.answer = self.world.prioritize(self.options.get("form", "names"), self._sent(name), self._among())

    def post(self, given: Object) -> None:
        """Bytes as they are: `filter`, `choose`, `prioritize` or `preempt` with whatever somebody sends."""
        ((verb, body),) = given.items()
        self.answer = checks.decoded(getattr(self.world.verbs, verb)(body.encode()))

    def preempt(self, given: Object) -> None:
        """The scheduler's victims by node; `form: lower` in the spelling of old schedulers, `pods` with whole pods."""
        ((name, victims),) = given.items()
        self.answer = checks.preempted(
            self.world, self.options.get("form", "meta"), self._sent(name), {n: list(v) for n, v in victims.items()}
        )

    async def bind(self, given: Object) -> None:
        """Binds pods to nodes, all at once; what came of it is the outcome."""
        results = await asyncio.gather(*(self.world.bind(self._find(name), node) for name, node in given.items()))
        for name, error in zip(given, results, strict=True):
            self.outcomes[name] = Outcome(error=error)

    def written(self, given: Object) -> None:
        """How often the pods were written so far: each time costs a patch, and requeues a waiting pod."""
        assert {name: self.api.writes[name] for name in given} == given, dict(self.api.writes)

    async def bind_twice(self, given: Object) -> None:
        """Two calls for one pod at the same time; `{pod: [node, node]}`. The answers, in that order, are checked."""
        ((name, nodes),) = given.items()
        self.answer = list(await asyncio.gather(*(self.world.bind(self._find(name), node) for node in nodes)))

    async def bind_old(self, given: Object) -> None:
        """Binds the pod that had this name before it was recreated."""
        ((name, node),) = given.items()
        self.answer = await self.world.bind(self._replaced[name], node)

    async def schedule(self, pods: str | list[str]) -> None:
        """The whole way of pods through a scheduler, one after the other."""
        for name in _each(pods):
            node = self._choose(name)
            if node:
                self.outcomes[name] = Outcome(error=await self.world.bind(self._find(name), node))

    async def at_once(self, pods: str | list[str]) -> None:
        """All are asked about before any is bound, then all are bound at the same time."""
        chosen = {name: node for name in self._matching(pods) if (node := self._choose(name))}
        await self.bind(chosen)

    def _choose(self, name: str) -> str:
        """One scheduling cycle: the node a scheduler would take, or nothing."""
        pod, form = self._sent(name), self.options.get("form", "names")
        answer = self.world.filter(form, pod, self._among())
        self.outcomes[name] = Outcome.of(answer)
        if answer["Error"]:
            return ""
        if not answer["fits"]:
            self.world.unschedulable(self._find(name), answer)
            return ""
        if len(answer["fits"]) == 1:
            return str(answer["fits"][0])
        scores = self.world.prioritize(form, pod, answer["fits"])
        best = str(max(answer["fits"], key=lambda node: scores.get(node, 0)))
        chosen = self.world.filter(form, pod, self._among(), verb="choose")
        assert not scores or chosen["fits"] == [best], f"choose takes {chosen['fits']}, filter and prioritize {best}"
        return best

    def _among(self) -> list[str]:
        return list(self.options.get("among", self.api.nodes))

    def _sent(self, name: str) -> Object:
        """The pod as the scheduler knows it; `stale`: it has not seen the binding yet."""
        pod = self._find(name)
        stale: Object = self.api.before.get(pod["metadata"]["uid"], pod)
        return stale if self.options.get("stale") else pod

    def _find(self, name: str) -> Object:
        found = [pod for (_, other), pod in self.api.pods.items() if other == name]
        assert len(found) == 1, f"{len(found)} pods {name!r}"
        return found[0]

    def _matching(self, pods: str | list[str]) -> list[str]:
        """`web-*` stands for all pods whose names begin so."""
        every = [name for _, name in self.api.pods]
        return [n for p in _each(pods) for n in (every if p.endswith("*") else [p]) if n.startswith(p.rstrip("*"))]


def _each(given: str | list[str]) -> list[str]:
    return [given] if isinstance(given, str) else given


DEEDS = sorted(word.replace("_", "-") for word in vars(Deeds) if not word.startswith("_"))
