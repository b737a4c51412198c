"""The state of each component, and what is wrong, by component and node."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from gpushare.operator.desired.component import Component
from gpushare.operator.seeing.keys import WORKLOADS, Key, key_of
from gpushare.operator.seeing.models import Live
from gpushare.operator.status import readiness
from gpushare.operator.status.facts import NodeFacts, PodFacts, Problem

State = Literal["ready", "notReady", "disabled", "unserved"]

NODE_PART, VALIDATOR = "node-part", "validator"
FOUND_BY: Final = {"driver": "driver", "toolkit": "toolkit", "mps": "mps", "workload": VALIDATOR}
# Extras: that they cannot be served is said, and the rest is ready nevertheless.
EXTRAS: Final = frozenset({"monitoring", "mig-manager", "vgpu-manager", "vgpu-device-manager", "vfio-manager"})
NOT_CHECKED: Final = "its checks have no result yet"
NO_POD: Final = "no pod of it is there yet; if that lasts, the node has a taint that daemonsets.tolerations do not name"
NOT_THERE: Final = "{name} is not there yet"


class Line(NamedTuple):
    """One thing that is wrong. Without a node it is about all of them. `more`: since when, and what to do; said of each
    component, and left out where many lines stand together."""

    component: str
    node: str
    text: str
    more: str = ""

    def __str__(self) -> str:
        return ": ".join(part for part in self[:3] if part)

    def whole(self) -> str:
        """Where the component is known."""
        text = str(self._replace(component=""))
        return f"{text}; {self.more}" if self.more else text


class Stand(NamedTuple):
    """How a component is."""

    name: str
    state: State
    desired: int = 0
    ready: int = 0
    message: str = ""


class Scene(NamedTuple):
    """All that the status is made from. `failed`: what could not be written, as lines."""

    components: Sequence[Component]
    owned: Mapping[Key, Live]
    nodes: Iterable[NodeFacts]
    pods: Iterable[PodFacts]
    failed: Sequence[Line] = ()


def lines(scene: Scene) -> list[Line]:
    """Everything that is wrong, sorted. Counts of pods only where nothing says more."""
    running = frozenset(one.name for one in scene.components if one.enabled and not one.unserved)
    found = set(scene.failed) | _of_pods(scene, running) | _of_nodes(scene, running)
    found |= {Line(one.name, "", one.unserved) for one in scene.components if one.unserved and one.name not in EXTRAS}
    named = {line.component for line in found}
    for component in scene.components:
        if component.name in running and component.name not in named:
            found |= {Line(component.name, "", text) for text in _counts(component, scene.owned).missing}
    if NODE_PART in running - {line.component for line in found}:
        found |= _without_node_part(scene)
    return sorted(found)


def _without_node_part(scene: Scene) -> set[Line]:
    """A DaemonSet counts nodes a moment after their labels have changed, and never those whose taints it does not
    tolerate: all that it has made may be ready while nodes have nothing."""
    there = {(pod.node, pod.name.rpartition("-")[0]) for pod in scene.pods if not pod.ends}
    return {
        Line(NODE_PART, node.name, NO_POD) for node in scene.nodes if node.part and (node.name, node.part) not in there
    }


def stands(scene: Scene, wrong: Sequence[Line]) -> list[Stand]:
    first: dict[str, Line] = {}
    for line in wrong:
        first.setdefault(line.component, line)
    return [_stand(component, scene, first.get(component.name)) for component in scene.components]


def _stand(component: Component, scene: Scene, line: Line | None) -> Stand:
    if component.unserved:
        return Stand(component.name, "unserved", message=component.unserved)
    if not component.enabled:
        return Stand(component.name, "disabled")
    counts = _counts(component, scene.owned)
    if line is None:
        return Stand(component.name, "ready", counts.desired, counts.ready)
    return Stand(component.name, "notReady", counts.desired, counts.ready, line.whole())


class _Counts(NamedTuple):
    desired: int
    ready: int
    missing: list[str]


def _counts(component: Component, owned: Mapping[Key, Live]) -> _Counts:
    desired = ready = 0
    missing = []
    for wanted in component.objects:
        key = key_of(wanted)
        live = owned.get(key)
        if live is None or live.metadata.deletion_timestamp:
            missing.append(NOT_THERE.format(name=key))
        elif key.kind in WORKLOADS:
            found = readiness.of(key.kind, live)
            desired, ready = desired + found.desired, ready + found.ready
            missing += [found.missing] if found.missing else []
    return _Counts(desired, ready, missing)


def _of_pods(scene: Scene, running: frozenset[str]) -> set[Line]:
    return {
        Line(pod.component, pod.node, pod.problem)
        for pod in scene.pods
        if pod.problem and pod.component in running and not pod.ends
    }


def _of_nodes(scene: Scene, running: frozenset[str]) -> set[Line]:
    found = set()
    for node in scene.nodes:
        if not node.gpus:
            continue
        for problem in node.problems:
            if not problem.check or (node.served and VALIDATOR in running):
                found.add(Line(_responsible(problem, running), node.name, problem.text, problem.more))
        if node.served and not node.checked and VALIDATOR in running:
            found.add(Line(VALIDATOR, node.name, NOT_CHECKED))
    return found


def _responsible(problem: Problem, running: frozenset[str]) -> str:
    """A driver that is not ours is missed by the node part, which comes next."""
    component = FOUND_BY.get(problem.check, NODE_PART)
    return component if component in running else NODE_PART
