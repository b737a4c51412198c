"""What a scenario can expect, at its end or after any step.

All of it is read from outside: the pods in the cluster, the answers to the scheduler, `inspect`, `explain`, events.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from gpushare.core.facts import names
from gpushare.core.steps import finish
from tests.scenarios.world import World
from tests.support.builders import node_state
from tests.support.objects import Object, known

WORDS = {
    "expect", "fits", "free", "held", "woken", "annotations", "events", "explain", "inspect", "answer", "scores",
    "empty",
}  # fmt: skip
PLACED, REFUSED, FAILED, FITS = "node", "refused", "error", "fits"


@dataclass
class Outcome:
    """What the scheduler was last told about a pod."""

    error: str = ""
    refused: dict[str, str] = field(default_factory=dict)
    fits: list[str] = field(default_factory=list)

    @staticmethod
    def of(answer: Object) -> "Outcome":
        refused = answer["FailedNodes"] | answer["FailedAndUnresolvableNodes"]
        return Outcome(answer["Error"], refused, answer.get("fits", []))


async def check(world: World, outcomes: dict[str, Outcome], answer: Any, wanted: Object) -> None:
    for name, expected in wanted.get("expect", {}).items():
        _expect(world, name, outcomes.get(name), expected if isinstance(expected, dict) else {PLACED: expected})
    for word, given in (("answer", answer), ("scores", answer), ("fits", answer)):
        if word in wanted:
            compare(given["fits"] if word == "fits" else given, wanted[word], word)
    assert not (wanted.get("empty") and answer), f"not empty: {answer}"
    _check_memory(world, wanted)
    _check_words(world, wanted)
    if "events" in wanted:
        await _events(world, wanted["events"])


def _check_memory(world: World, wanted: Object) -> None:
    for node, free in wanted.get("free", {}).items():
        _same(world.free(node), free, f"free on {node}")
    for name, node in wanted.get("held", {}).items():
        _same(world.held(_pod(world, name)["metadata"]["uid"]), node, f"the hold of {name}")
    if "woken" in wanted:
        woken, world.woken[:] = list(world.woken), []
        _same(woken, wanted["woken"], "woken")


def _check_words(world: World, wanted: Object) -> None:
    for name, expected in wanted.get("annotations", {}).items():
        have = _pod(world, name)["metadata"]["annotations"]
        for key, value in expected.items():
            text = json.dumps(value, separators=(",", ":")) if isinstance(value, dict | list) else value
            _same(have.get(key), text, f"annotation {key} of {name}")
    for name, expected in wanted.get("explain", {}).items():
        status, body = finish(world.verbs.explain("default", name))
        compare(json.loads(body) | {"status": status}, expected, f"explain {name}")
    for node, expected in wanted.get("inspect", {}).items():
        status, body = world.verbs.inspect(None if node == "*" else node)
        compare(json.loads(body) | {"status": status}, expected, f"inspect {node}")


def _expect(world: World, name: str, outcome: Outcome | None, expected: Object) -> None:
    if PLACED not in expected:
        known(expected, {REFUSED, FAILED, FITS}, f"expect {name}")
        assert outcome is not None, f"{name}: nobody asked about it"
        ((word, wanted),) = expected.items()
        if word == REFUSED and not isinstance(wanted, dict):  # the same sentence for every node
            assert outcome.refused, f"{name}: not refused: {outcome}"
            wanted = dict.fromkeys(outcome.refused, wanted)
        _same(getattr(outcome, word), wanted, f"{name}: {word} ({outcome})")
        return
    pod = _pod(world, name)
    node = pod["spec"].get("nodeName")
    said = f" ({outcome})" if node is None else ""
    _same(node, expected[PLACED], f"{name}: node{said}")
    places = gpus_of(world, pod)
    for container, wanted in expected.items():
        if container != PLACED:
            gpus = [wanted] if isinstance(wanted, int) else wanted
            _same(places.get(container), gpus, f"{name}: GPUs of {container}")


def gpus_of(world: World, pod: Object) -> dict[str, list[int]]:
    """Which GPUs each container has, by the allocation and, where there are any, by the env of each container."""
    annotations, spec = pod["metadata"]["annotations"], pod["spec"]
    order = [*spec["containers"], *spec["initContainers"]]
    allocation = json.loads(annotations.get(names.ALLOCATION, "{}"))
    places = {order[int(i)]["name"]: sorted(int(gpu) for gpu in amounts) for i, amounts in allocation.items()}
    for container in order:
        for env in container["env"][-1:]:
            key = env.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")[len("metadata.annotations['") : -2]
            if key in annotations:
                seen = sorted(_index(world, spec["nodeName"], uuid) for uuid in annotations[key].split(","))
                stays = container.get("restartPolicy") == "Always" or container in spec["containers"]
                if stays:
                    _same(places[container["name"]], seen, f"{container['name']}: allocation and env")
                places[container["name"]] = seen
    return places


def _index(world: World, node: str, uuid: str) -> int:
    facts = node_state(world.ledger, node).facts
    assert facts is not None
    return next(gpu.index for gpu in facts.gpus if gpu.uuid == uuid)


async def _events(world: World, wanted: Object) -> None:
    """`{pod or node: ["Reason: text"]}`, all of them in order. Events may take a moment."""
    await world.wait(2)
    for name, texts in wanted.items():
        mine = [event for event in world.api.events if event.involved_object.name == name]
        _same([f"{event.reason}: {event.message}" for event in mine], texts, f"events of {name}")
        assert all(len(event.message) <= 200 for event in mine)


def preempted(world: World, form: str, pod: Object, victims: dict[str, list[str]]) -> Any:
    """Asks the preempt verb about victims named by pod; answers pods by name and violations, by node."""
    uids = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in world.api.pods.values()}
    chosen = {node: [_pod(world, name) for name in listed] for node, listed in victims.items()}
    ids = {node: [pod["metadata"]["uid"] for pod in listed] for node, listed in chosen.items()}
    bodies: dict[str, Object] = {
        "meta": {
            "Pod": pod,
            "NodeNameToVictims": None,
            "NodeNameToMetaVictims": {
                node: {"Pods": [{"UID": uid} for uid in listed], "NumPDBViolations": 0} for node, listed in ids.items()
            },
        },
        "pods": {
            "Pod": pod,
            "NodeNameToVictims": {n: {"Pods": listed, "NumPDBViolations": 0} for n, listed in chosen.items()},
            "NodeNameToMetaVictims": None,
        },
        "lower": {
            "pod": pod,
            "nodeNameToMetaVictims": {
                node: {"pods": [{"uid": uid} for uid in listed], "numPDBViolations": 0} for node, listed in ids.items()
            },
        },
        "lower pods": {
            "pod": pod,
            "nodeToVictims": {n: {"pods": listed, "numPDBViolations": 0} for n, listed in chosen.items()},
        },
    }
    answer = json.loads(world.verbs.preempt(json.dumps(bodies[form]).encode()))
    nodes = answer["NodeNameToMetaVictims"]
    return {
        node: {"pods": [uids[entry["UID"]] for entry in given["Pods"]], "violations": given["NumPDBViolations"]}
        for node, given in nodes.items()
    }


def decoded(body: bytes) -> Any:
    return json.loads(body)


def compare(have: Any, wanted: Any, what: str) -> None:
    """Mappings may have more than is wanted; all else must be equal."""
    if isinstance(wanted, dict) and isinstance(have, dict):
        for key, value in wanted.items():
            assert key in have, f"{what}: no {key!r} in {have}"
            compare(have[key], value, f"{what}.{key}")
    elif isinstance(wanted, list) and isinstance(have, list):
        assert len(have) == len(wanted), f"{what}: {have}, expected {wanted}"
        for i, (one, other) in enumerate(zip(have, wanted, strict=True)):
            compare(one, other, f"{what}[{i}]")
    else:
        _same(have, wanted, what)


def _pod(world: World, name: str) -> Object:
    return next(pod for (_, other), pod in world.api.pods.items() if other == name)


def _same(have: object, wanted: object, what: str) -> None:
    assert have == wanted, f"{what}: {have!r}, expected {wanted!r}"
