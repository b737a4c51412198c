"""What an admin's settings do to where pods may go: reserved nodes, named nodes, and nodes without GPUs."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from gpushare.core.facts import intree, names, objects, request
from gpushare.core.facts.model import NodeFacts, PodFacts, Refusal, Request
from gpushare.core.facts.scoring.settings import NEUTRAL, Settings
from gpushare.core.ledger.holding import State
from gpushare.core.scheduling.life import Answer, Life
from gpushare.core.scheduling.reach import NodesByRules, Reach
from tests.support.builders import api_pod, bound, facts, ledger, node, pod

NODES = ["a", "b", "cpu"]
RESERVING = Settings(reservation=True)
CPU_ONLY = [objects.Container("main")]


def plain(**more: Any) -> PodFacts:
    """A pod that asks for no GPU."""
    return pod(containers=CPU_ONLY, **more)


def world(*nodes: NodeFacts, reserved: Sequence[str] = ()) -> Life:
    """These nodes, and one without GPUs. `reserved`: those that an admin reserved."""
    rules = NodesByRules()
    for name in (*(one.name for one in nodes), "cpu"):
        annotations = {names.RESERVED: "yes"} if name in reserved else {}
        listed = objects.Node(objects.Metadata(name=name, annotations=annotations))
        rules.set_node(name, intree.node_rules(listed))
    reach = Reach(rules.allowed, rules.open_to, rules.reserved)
    return Life(ledger(*nodes), policy="binpack", reach=reach)


@pytest.fixture
def life() -> Life:
    """Two nodes with a GPU, and one without. `a` and `cpu` are reserved."""
    return world(facts(8, name="a", reserved="yes"), facts(8, name="b"), reserved=("a", "cpu"))


def said(answer: Answer) -> dict[str, str]:
    return {node: refusal.code for node, refusal in answer.refusals.items()}


# Reserved nodes


def test_a_reservation_means_nothing_unless_the_policy_permits_it(life: Life) -> None:
    assert life.filter(pod(4), NODES, 0.0).fits == ["a", "b"]
    assert life.filter(plain(), NODES, 0.0).fits == NODES


def test_a_reserved_node_takes_no_new_pod(life: Life) -> None:
    life.apply(RESERVING)
    assert life.filter(pod(4), NODES, 0.0).fits == ["b"]
    assert life.filter(pod(2, 2), NODES, 0.0).fits == ["b"]
    assert life.choose(pod(4), ["a"], 0.0).fits == []
    assert said(life.choose(pod(4), ["a", "cpu"], 0.0)) == {"a": "Reserved", "cpu": "NoSharedGpu"}


def test_a_pod_without_gpus_is_kept_off_reserved_nodes_too(life: Life) -> None:
    life.apply(RESERVING)
    assert life.filter(plain(), NODES, 0.0).fits == ["b"]
    assert said(life.filter(plain(), ["a", "cpu"], 0.0)) == {"a": "Reserved", "cpu": "Reserved"}
    assert life.preempt(plain(), {"a": [], "b": []}) == {"b": []}


def test_what_runs_on_a_node_stays_when_it_is_reserved(life: Life) -> None:
    runs = bound(pod(4), facts(8, name="a", reserved="yes"), ((0,),))
    life.observe(runs, 0.0)
    life.apply(RESERVING)
    holding = life.ledger.holding(runs.uid)
    assert holding is not None
    assert (holding.state, [charge.units for charge in holding.charges or ()]) == (State.BOUND, [4])


def test_a_pod_assumed_there_is_not_bound_once_the_node_is_reserved(life: Life) -> None:
    who = pod(4)
    assert life.choose(who, ["a"], 0.0).fits == ["a"]
    life.apply(RESERVING)
    assert isinstance(who.request, Request)
    refused = life.reserve(who, who.request, "a", extender="me", nanoseconds=1)
    assert isinstance(refused, Refusal)
    assert refused.code == "Reserved"


@pytest.mark.parametrize("ended_by", ["policy", "annotation"])
def test_pods_are_woken_when_a_reservation_ends(ended_by: str) -> None:
    life = world(facts(8, name="a", reserved="yes"), reserved="a")
    life.apply(RESERVING)
    who = pod(4)
    life.choose(who, ["a"], 0.0)
    assert life.due(0.0) == []
    if ended_by == "policy":
        life.apply(NEUTRAL)
    else:
        life.ledger.set_node(facts(8, name="a"))
    assert life.due(1.0) == [who]
    assert life.choose(who, ["a"], 1.0).fits == ["a"]


def test_a_node_that_is_blocked_for_another_reason_stays_blocked() -> None:
    life = world(facts(8, name="a", state="draining", reserved="yes"), reserved="a")
    for settings in (RESERVING, NEUTRAL):
        life.apply(settings)
        assert said(life.choose(pod(4), ["a"], 0.0)) == {"a": "PluginDown"}


def test_nodes_of_aliyuns_plugin_can_be_reserved() -> None:
    life = world(facts(8, name="a", pin="aliyun", reserved="yes"), reserved="a")
    life.apply(RESERVING)
    assert said(life.choose(pod(4, direct=False), ["a"], 0.0)) == {"a": "Reserved"}


def test_an_empty_annotation_reserves_nothing() -> None:
    listed = node(8)
    listed.metadata.annotations = {**(listed.metadata.annotations or {}), names.RESERVED: ""}
    assert not intree.node_rules(listed).reserved


def test_a_node_that_is_gone_is_reserved_no_longer() -> None:
    rules = NodesByRules()
    rules.set_node("a", intree.node_rules(node(8, name="a", reserved="yes")))
    assert set(rules.reserved()) == {"a"}
    rules.remove_node("a")
    assert not rules.reserved()


# A pod that names its node


@pytest.mark.parametrize("units", [(4,), (2, 2)])
def test_a_pod_that_names_its_node_goes_nowhere_else(life: Life, units: tuple[int, ...]) -> None:
    who = pod(*units, only="b")
    assert life.choose(who, NODES, 0.0).fits == ["b"]
    assert life.filter(who, NODES, 0.0).fits == ["b"]
    assert life.prioritize(who, NODES, 0.0) == [("b", 10)]
    assert life.preempt(who, {"a": [], "b": []}) == {"b": []}
    assert isinstance(who.request, Request)
    life.ledger.release(who.uid)
    refused = life.reserve(who, who.request, "a", extender="me", nanoseconds=1)
    assert isinstance(refused, Refusal)
    assert refused.code == "OtherNode"


@pytest.mark.parametrize("units", [(9,), (5, 5)])
def test_the_named_node_says_why_and_the_others_that_they_are_others(life: Life, units: tuple[int, ...]) -> None:
    answer = life.choose(pod(*units, only="b"), NODES, 0.0)
    assert said(answer)["a"] == said(answer)["cpu"] == "OtherNode"
    assert said(answer)["b"] != "OtherNode"


def test_a_pod_that_names_a_node_that_is_not_there_is_refused_by_all(life: Life) -> None:
    assert set(said(life.choose(pod(4, only="nowhere"), NODES, 0.0)).values()) == {"OtherNode"}
    assert set(said(life.filter(plain(only="nowhere"), NODES, 0.0)).values()) == {"OtherNode"}


def test_it_is_woken_only_for_its_own_node(life: Life) -> None:
    full = [bound(pod(8), facts(8, name=name), ((0,),)) for name in ("a", "b")]
    for one in full:
        life.observe(one, 0.0)
    life.due(0.0)
    who = pod(4, only="b")
    life.choose(who, NODES, 0.0)
    life.forget(full[0].uid)
    assert life.due(1.0) == []
    life.forget(full[1].uid)
    assert life.due(2.0) == [who]


def test_a_pod_without_gpus_may_name_its_node(life: Life) -> None:
    assert life.filter(plain(only="b"), NODES, 0.0).fits == ["b"]


@pytest.mark.parametrize(("scheduler", "written", "only"), [
    ("gpu-scheduler", "b", "b"), ("gpu-scheduler", "", ""), ("default-scheduler", "b", ""), (None, "b", ""),
    ("gpu-scheduler", "x" * 300_000, "x" * 254),
])  # fmt: skip
def test_only_pods_of_gpu_scheduler_name_their_node(scheduler: str | None, written: str, only: str) -> None:
    for containers in (None, CPU_ONLY):
        made = api_pod(*((4,) if containers is None else ()), containers=containers, notes={names.NODE_NAME: written})
        made.spec.scheduler_name = scheduler
        assert request.facts(made, None).only_node == only


def test_a_pod_with_very_long_rules_still_names_its_node() -> None:
    made = api_pod(4, only="b")
    made.spec.node_selector = {f"key-{i}": "x" for i in range(100)}
    assert request.facts(made, None).only_node == "b"


def test_once_it_is_bound_the_name_means_nothing() -> None:
    assert request.facts(api_pod(4, only="b", on="a"), None).only_node == ""
    who = pod(4, only="b")
    assert request.bound(who, "b", {}).only_node == ""


# Pods that ask for no GPU


def test_pods_without_gpus_prefer_nodes_without_gpus_if_the_policy_says_so(life: Life) -> None:
    assert life.prioritize(plain(), NODES, 0.0) == []
    life.apply(Settings(prefers_other_nodes=True))
    assert life.prioritize(plain(), NODES, 0.0) == [("cpu", 10)]
    assert life.prioritize(plain(), ["a", "b"], 0.0) == []
    assert life.prioritize(pod(4), NODES, 0.0)[0][0] in ("a", "b")
    assert life.filter(plain(), NODES, 0.0).fits == NODES


def test_a_pod_for_nvidias_plugin_does_not_prefer_them(life: Life) -> None:
    life.apply(Settings(prefers_other_nodes=True))
    assert life.prioritize(pod(nvidia=1, direct=False), NODES, 0.0) == []


def test_settings_are_what_was_applied_last(life: Life) -> None:
    life.apply(RESERVING)
    life.apply(msgspec.structs.replace(NEUTRAL, reschedules=True))
    assert (life.settings.reservation, life.settings.reschedules) == (False, True)
