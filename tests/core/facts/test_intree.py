"""kube-scheduler's own checks: the nodes it would not even ask us about, and its words for them."""

from typing import Any

import msgspec
import pytest

from gpushare.core.annotations import node_gpus
from gpushare.core.facts import intree, names, objects, request
from gpushare.core.facts.intree import Node, Pod
from gpushare.core.facts.model import Request, Rules

GPU_MEM = names.GPU_MEM
CONTROL_PLANE = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
TRAIN = {"key": "dedicated", "value": "train", "effect": "NoSchedule"}


def node(*, spec: Any = None, labels: Any = None, **offers: Any) -> Node:
    """A node with room for anything that is not said to be short."""
    allocatable = {"cpu": "64", "memory": "512Gi", "pods": "110"} | offers
    given = {"metadata": {"name": "n", "labels": labels}, "spec": spec or {}, "status": {"allocatable": allocatable}}
    return msgspec.convert(given, Node)


def pod(*containers: Any, init: Any = (), **spec: Any) -> Pod:
    """Containers are what they request, or `{"limits": ...}`, or `{"sidecar": ...}`."""
    return msgspec.convert(
        {"spec": {"containers": [*map(_container, containers)], "initContainers": [*map(_container, init)], **spec}},
        Pod,
    )


def _container(given: Any) -> Any:
    if "sidecar" in given:
        return {"resources": {"requests": given["sidecar"]}, "restartPolicy": "Always"}
    return {"resources": given if "limits" in given else {"requests": given}}


def details(pod: Pod, node: Node, **taken: int) -> list[str]:
    return [obstacle.detail for obstacle in intree.obstacles(pod, node, taken)]


# Cordon, taints, labels


def test_nothing_is_in_the_way_of_a_small_pod() -> None:
    assert intree.obstacles(pod({"cpu": "1"}), node(), {}) == []


def test_a_cordoned_node_takes_nobody() -> None:
    (found,) = intree.obstacles(pod({}), node(spec={"unschedulable": True}), {})
    assert found == intree.Obstacle("Cordoned", "node(s) were unschedulable", "cordoned", "cordon")


def test_a_cordon_and_its_taint_are_one_obstacle() -> None:
    """A controller adds the taint a moment later."""
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    cordoned = node(spec={"unschedulable": True, "taints": [taint]})
    assert details(pod({}), cordoned) == ["cordoned"]
    assert details(pod({}, tolerations=[taint | {"operator": "Exists"}]), cordoned) == []


def test_a_taint_is_named_as_kubectl_writes_it() -> None:
    found = intree.obstacles(pod({}), node(spec={"taints": [TRAIN, CONTROL_PLANE]}), {})
    assert found[0] == intree.Obstacle(
        "Taint",
        "node(s) had untolerated taint(s)",
        "taint dedicated=train:NoSchedule not tolerated",
        "dedicated=train:NoSchedule",
    )
    assert found[1].subject == "node-role.kubernetes.io/control-plane:NoSchedule"


@pytest.mark.parametrize(
    ("toleration", "covers"),
    [
        ({"key": "dedicated", "value": "train"}, True),
        ({"key": "dedicated", "operator": "Equal", "value": "train", "effect": "NoSchedule"}, True),
        ({"key": "dedicated", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "dedicated"}, False),
        ({"key": "dedicated", "value": "serve"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "dedicated", "operator": "Gt", "value": "train"}, False),
    ],
)
def test_a_toleration_covers_what_kubernetes_says(toleration: Any, covers: bool) -> None:
    assert (details(pod({}, tolerations=[toleration]), node(spec={"taints": [TRAIN]})) == []) is covers


@pytest.mark.parametrize(("effect", "keeps_off"), [("NoSchedule", 1), ("NoExecute", 1), ("PreferNoSchedule", 0)])
def test_a_preference_keeps_nobody_off(effect: str, keeps_off: int) -> None:
    assert len(details(pod({}), node(spec={"taints": [TRAIN | {"effect": effect}]}))) == keeps_off


def test_every_label_of_a_selector_must_match() -> None:
    wants = pod({}, nodeSelector={"disk": "ssd", "zone": "a"})
    assert details(wants, node(labels={"disk": "ssd", "zone": "a"})) == []
    (found,) = intree.obstacles(wants, node(labels={"disk": "hdd", "zone": "a"}), {})
    assert found == intree.Obstacle(
        "NodeSelector",
        "node(s) didn't match Pod's node affinity/selector",
        "nodeSelector disk=ssd does not match",
        "disk=ssd",
    )
    assert len(details(wants, node())) == 2


# Required node affinity


NOT_SELECTED = "node(s) didn't match Pod's node affinity/selector"
NOT_NAMED = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
LABELS = {"zone": "a", "gpus": "8", "spot": ""}


def affine(*terms: Any) -> Any:
    """The words of a spec that keep a pod to nodes that meet one of these terms."""
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def labels(*conditions: str) -> Any:
    """A term on labels: `zone In a b`."""
    return {"matchExpressions": [_condition(text) for text in conditions]}


def named(*conditions: str) -> Any:
    """A term on the node's name."""
    return {"matchFields": [_condition(f"metadata.name {text}") for text in conditions]}


def _condition(text: str) -> Any:
    key, operator, *values = text.split()
    return {"key": key, "operator": operator} | ({"values": values} if values else {})


AFFINITIES = [
    ([labels("zone In a b")], True),
    ([labels("zone In b")], False),
    ([labels("rack In a")], False),
    ([labels("zone NotIn b c")], True),
    ([labels("zone NotIn b a")], False),
    ([labels("rack NotIn a")], True),
    ([labels("spot Exists")], True),
    ([labels("rack Exists")], False),
    ([labels("rack DoesNotExist")], True),
    ([labels("spot DoesNotExist")], False),
    ([labels("gpus Gt 7")], True),
    ([labels("gpus Gt 8")], False),
    ([labels("gpus Lt 10")], True),
    ([labels("gpus Lt 8")], False),
    ([labels("gpus Gt -1")], True),
    ([labels("gpus Gt +7")], True),
    ([labels("gpus Gt 7.5")], False),
    ([labels("gpus Gt 1_0")], False),
    ([labels("gpus Lt 9223372036854775807")], True),
    ([labels("gpus Lt 9223372036854775808")], False),
    ([labels("zone Gt 7")], False),
    ([labels("rack Lt 7")], False),
    ([labels("gpus Gt")], False),
    ([labels("gpus Gt 1 2")], False),
    ([labels("zone Like a")], False),
    ([labels("zone In a", "gpus Gt 4")], True),
    ([labels("zone In a", "gpus Gt 9")], False),
    ([labels("zone In b"), labels("gpus In 8")], True),
    ([labels("zone In b"), labels("gpus In 9")], False),
    ([named("In n")], True),
    ([named("In m")], False),
    ([named("NotIn n")], False),
    ([named("NotIn m")], True),
    ([{"matchFields": [_condition("spec.name In n")]}], False),
    ([labels("zone In a") | named("In n")], True),
    ([labels("zone In a") | named("In m")], False),
    ([labels("zone In b") | named("In n")], False),
    ([{}], False),
    ([{}, labels("zone In a")], True),
    ([labels()], False),
    ([{"matchExpressions": None, "matchFields": None}], False),
    ([], False),
]


@pytest.mark.parametrize(("terms", "matches"), AFFINITIES)
def test_affinity_means_what_kube_scheduler_takes_it_to_mean(terms: Any, matches: bool) -> None:
    wants, there = pod({}, affinity=affine(*terms)), node(labels=LABELS)
    found = intree.obstacles(wants, there, {})
    assert (found == []) is matches
    assert {(one.code, one.message) for one in found} <= {("NodeAffinity", NOT_SELECTED), ("NodeAffinity", NOT_NAMED)}
    assert intree.admits(_rules(affinity=affine(*terms)), intree.node_rules(there)) is matches


@pytest.mark.parametrize("given", [None, {}, {"nodeAffinity": {}}, {"podAffinity": {}}, {"nodeAffinity": None}])
def test_who_requires_nothing_may_go_anywhere(given: Any) -> None:
    preferred = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}]}}
    for affinity in (given, preferred):
        assert details(pod({}, affinity=affinity), node()) == []
        assert _rules(affinity=affinity) is None


def test_an_affinity_is_written_as_kubectl_takes_labels() -> None:
    term = labels(
        "zone In b c d e", "spot NotIn x", "zone NotIn a", "rack Exists", "spot DoesNotExist", "gpus Gt 8", "gpus Lt 4"
    )
    found = intree.obstacles(pod({}, affinity=affine(term)), node(labels=LABELS), {})
    assert [one.subject for one in found] == [
        "zone in (b,c,d,…)", "zone notin (a)", "rack", "!spot", "gpus>8", "gpus<4"
    ]  # fmt: skip
    assert found[0].detail == "node affinity zone in (b,c,d,…) does not match"
    assert details(pod({}, affinity=affine(named("In m"))), node()) == [
        "node affinity metadata.name in (m) does not match"
    ]
    several = affine(labels("zone In b"), labels("zone In c"))
    assert details(pod({}, affinity=several), node()) == ["no term of its node affinity matches"]


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ([named("In m")], NOT_NAMED),
        ([named("In m"), named("In o")], NOT_NAMED),
        ([named("In m") | labels("zone In a")], NOT_NAMED),
        ([named("In n") | labels("zone In a")], "node(s) were unschedulable"),
        ([named("In m"), labels("zone In a")], "node(s) were unschedulable"),
        ([named("NotIn n")], "node(s) were unschedulable"),
        ([], "node(s) were unschedulable"),
    ],
)
def test_of_nodes_that_an_affinity_does_not_name_kube_scheduler_looks_at_nothing_else(terms: Any, said: str) -> None:
    found = intree.obstacles(pod({}, affinity=affine(*terms)), node(spec={"unschedulable": True}), {})
    assert intree.reasons(found) == [said]
    assert {one.code for one in found} == {"Cordoned", "NodeAffinity"}


def test_selector_and_affinity_are_one_check_to_kube_scheduler() -> None:
    wants = pod({}, nodeSelector={"disk": "ssd"}, affinity=affine(labels("zone In b")))
    assert intree.reasons(intree.obstacles(wants, node(), {})) == ["node(s) didn't match Pod's node affinity/selector"]


# What a waiting pod is remembered by


def _rules(**spec: Any) -> Rules | None:
    asks = {"containers": [{"resources": {"limits": {GPU_MEM: "1"}}}]}
    return request.facts(msgspec.convert({"spec": asks | spec}, objects.Pod), None).rules


@pytest.mark.parametrize(
    ("pod_says", "node_has", "goes"),
    [
        ({}, {}, True),
        ({}, {"spec": {"unschedulable": True}}, False),
        ({}, {"spec": {"taints": [TRAIN]}}, False),
        ({}, {"spec": {"taints": [TRAIN | {"effect": "NoExecute"}]}}, False),
        ({}, {"spec": {"taints": [TRAIN | {"effect": "PreferNoSchedule"}]}}, True),
        ({"tolerations": [TRAIN]}, {"spec": {"taints": [TRAIN]}}, True),
        ({"tolerations": [TRAIN]}, {"spec": {"taints": [TRAIN, CONTROL_PLANE]}}, False),
        ({"tolerations": [{"operator": "Exists"}]}, {"spec": {"taints": [TRAIN], "unschedulable": True}}, True),
        ({"nodeSelector": {"disk": "ssd"}}, {}, False),
        ({"nodeSelector": {"disk": "ssd"}}, {"labels": {"disk": "ssd", "zone": "a"}}, True),
        ({"nodeSelector": {"disk": "ssd"}}, {"labels": {"disk": "ssd"}, "spec": {"taints": [TRAIN]}}, False),
        ({"nodeSelector": {"disk": "ssd"}, "affinity": affine(named("In m"))}, {"labels": {"disk": "ssd"}}, False),
    ],
)
def test_a_node_admits_whom_kube_scheduler_would_send(pod_says: Any, node_has: Any, goes: bool) -> None:
    there = node(**node_has)
    assert intree.admits(_rules(**pod_says), intree.node_rules(there)) is goes
    assert (intree.obstacles(pod({}, **pod_says), there, {}) == []) is goes


def test_a_full_node_still_admits() -> None:
    assert intree.admits(None, intree.node_rules(node(cpu="0", pods="0")))


def test_only_a_pod_that_waits_for_gpus_has_rules() -> None:
    assert _rules() is None
    assert _rules(nodeSelector={}, tolerations=[], affinity=None) is None
    assert _rules(nodeSelector={"disk": "ssd"}) is not None
    assert _rules(nodeSelector={"disk": "ssd"}, nodeName="n") is None
    assert request.facts(msgspec.convert({"spec": {"nodeSelector": {"disk": "ssd"}}}, objects.Pod), None).rules is None


def test_equal_rules_are_equal_whatever_their_order() -> None:
    one, other = _rules(nodeSelector={"a": "1", "b": "2"}), _rules(nodeSelector={"b": "2", "a": "1"})
    assert one == other
    assert hash(one) == hash(other)


@pytest.mark.parametrize(
    "spec",
    [
        {"affinity": affine(labels(*["zone In b"] * 33))},
        {"affinity": affine(*[labels("zone In b")] * 17)},
        {"affinity": affine(labels("zone In " + " ".join(map(str, range(257)))))},
        {"affinity": affine(labels("zone In " + "x" * 17_000))},
        {"nodeSelector": {f"label-{i}": "x" for i in range(33)}},
        {"tolerations": [{"key": f"key-{i}"} for i in range(33)]},
    ],
)
def test_rules_too_long_to_compare_with_every_node_are_not_looked_at(spec: Any) -> None:
    assert intree.admits(_rules(**spec), intree.node_rules(node(spec={"taints": [TRAIN], "unschedulable": True})))


# Totals


@pytest.mark.parametrize(
    ("asks", "offers", "taken", "message", "detail"),
    [
        ({"cpu": "4"}, {"cpu": "8"}, {"cpu": 6500}, "Insufficient cpu", "cpu: asks 4, 1.5 of 8 free"),
        ({"cpu": "100m"}, {"cpu": "1"}, {"cpu": 950}, "Insufficient cpu", "cpu: asks 0.1, 0.05 of 1 free"),
        ({"memory": "4Gi"}, {"memory": "8Gi"}, {"memory": 5 << 30}, "Insufficient memory",
         "memory: asks 4Gi, 3Gi of 8Gi free"),
        ({"memory": "100Mi"}, {"memory": "131072000Ki"}, {"memory": 131072000 * 1024 - 1}, "Insufficient memory",
         "memory: asks 100Mi, 0Mi of 128000Mi free"),
        ({GPU_MEM: "7k"}, {GPU_MEM: "16276"}, {GPU_MEM: 16000}, f"Insufficient {GPU_MEM}",
         f"{GPU_MEM}: asks 7000, 276 of 16276 free"),
        ({GPU_MEM: "1"}, {}, {}, f"Insufficient {GPU_MEM}", f"{GPU_MEM}: asks 1, 0 of 0 free"),
        ({}, {"pods": "110"}, {"pods": 110}, "Too many pods", "pods: 110 of 110 are there already"),
    ],
)  # fmt: skip
def test_a_shortage_says_what_is_asked_and_what_is_left(
    asks: Any, offers: Any, taken: Any, message: str, detail: str
) -> None:
    (found,) = intree.obstacles(pod(asks), node(**offers), taken)
    assert (found.code, found.message, found.detail) == ("Insufficient", message, detail)
    assert found.subject == next(iter(asks), "pods")


def test_a_shortage_of_one_byte_is_visible() -> None:
    said = details(pod({"memory": 2 << 30}), node(memory=str(8 << 30)), memory=(6 << 30) + 1)
    assert said == ["memory: asks 2Gi, 1.999Gi of 8Gi free"]


def test_what_just_fits_fits() -> None:
    full = {"cpu": 60_000, "memory": 508 << 30, "pods": 109, GPU_MEM: 9000}
    asks = pod({"cpu": "4", "memory": "4Gi", GPU_MEM: "7k"})
    assert intree.obstacles(asks, node(**{GPU_MEM: "16k"}), full) == []


def test_who_asks_nothing_of_a_resource_does_not_mind_its_being_overdrawn() -> None:
    assert details(pod({"cpu": "0"}), node(), cpu=70_000, memory=1 << 50) == []
    assert details(pod({"cpu": "1"}), node(), cpu=70_000) == ["cpu: asks 1, 0 of 64 free"]


def test_all_that_is_short_is_named_in_the_schedulers_order() -> None:
    asks = pod({GPU_MEM: "1", "memory": "1Ti", "cpu": "65", "example.com/fpga": "1"})
    subjects = [obstacle.subject for obstacle in intree.obstacles(asks, node(pods="0"), {})]
    assert subjects == ["pods", "cpu", "memory", GPU_MEM, "example.com/fpga"]


def test_of_a_node_kube_scheduler_tells_only_the_first_check_that_fails() -> None:
    asks = pod({"cpu": "65", GPU_MEM: "1"}, nodeSelector={"a": "1", "b": "2"})
    tainted = {"taints": [TRAIN, CONTROL_PLANE]}

    def said(**words: Any) -> list[str]:
        return intree.reasons(intree.obstacles(asks, node(**words), {}))

    assert said(spec={"unschedulable": True, **tainted}) == ["node(s) were unschedulable"]
    assert said(spec=tainted) == ["node(s) had untolerated taint(s)"]
    assert said() == ["node(s) didn't match Pod's node affinity/selector"]
    assert said(labels={"a": "1", "b": "2"}) == ["Insufficient cpu", f"Insufficient {GPU_MEM}"]
    assert intree.reasons([]) == []


# What a pod counts for


def test_containers_count_together_and_limits_stand_for_missing_requests() -> None:
    asks = pod({"cpu": "1.5"}, {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "500m"}})
    assert intree.needs(asks) == {"cpu": 2000, "memory": 1 << 30}


def test_init_containers_count_one_by_one_where_they_are_larger() -> None:
    asks = pod({"cpu": "1", GPU_MEM: "2k"}, init=[{"cpu": "3"}, {"cpu": "2", GPU_MEM: "1k"}])
    assert intree.needs(asks) == {"cpu": 3000, GPU_MEM: 2000}


def test_a_sidecar_counts_beside_what_starts_after_it() -> None:
    before = pod({"cpu": "1"}, init=[{"sidecar": {"cpu": "2"}}, {"cpu": "5"}])
    after = pod({"cpu": "1"}, init=[{"cpu": "5"}, {"sidecar": {"cpu": "2"}}])
    assert (intree.needs(before), intree.needs(after)) == ({"cpu": 7000}, {"cpu": 5000})
    assert intree.needs(pod({"cpu": "4"}, init=[{"sidecar": {"cpu": "2"}}])) == {"cpu": 6000}


@pytest.mark.parametrize(
    ("written", "counted"),
    [("1", 1000), ("0.1", 100), ("100m", 100), ("1e3", 1_000_000), ("1u", 1), (2, 2000), (0.5, 500), ("many", 0)],
)
def test_cpu_counts_in_thousandths_and_rounds_up(written: Any, counted: int) -> None:
    assert intree.needs(pod({"cpu": written})) == {"cpu": counted}


def test_pods_that_have_ended_take_nothing() -> None:
    there = [pod({"cpu": "1"}), pod({"cpu": "2", GPU_MEM: "7k"}), pod({"cpu": "4"}), pod({"cpu": "8"})]
    there[2].status.phase, there[3].status.phase = "Succeeded", "Failed"
    assert intree.totals(there) == {"pods": 2, "cpu": 3000, GPU_MEM: 7000}
    assert intree.totals([]) == {"pods": 0}


# The wider objects


def test_a_bookmark_that_holds_nothing_is_read() -> None:
    read = msgspec.json.decode(b'{"spec": {"containers": null, "tolerations": null}, "status": {}}', type=Pod)
    assert intree.needs(read) == {}
    assert details(read, msgspec.json.decode(b'{"spec": {"taints": null}}', type=Node)) == [
        "pods: 0 of 0 are there already"
    ]


def test_the_rest_of_the_core_takes_them() -> None:
    asks = pod({"limits": {GPU_MEM: "7k"}}, schedulingGates=[{"name": "example.com/quota"}])
    assert isinstance(request.facts(asks, None).request, Request)
    assert asks.spec.scheduling_gates == [intree.SchedulingGate("example.com/quota")]
    offers: Any = {GPU_MEM: "16k", names.GPU_COUNT: "2"}
    told = node(**offers)
    told.status.capacity = told.status.allocatable
    facts = node_gpus.read(told, frozenset())
    assert facts is not None
    assert [gpu.total for gpu in facts.gpus] == [8000, 8000]
