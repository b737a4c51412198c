"""What the operator says of a node, from what the node says and who has said it."""

import json
from typing import Any

import msgspec
import pytest

from gpushare.core.facts import names
from gpushare.operator import managed, node_writes, nodes
from gpushare.operator.desired.policy import DaemonSets, Flags, Part, Sharing, Spec
from gpushare.operator.managed import Node

PCI = {names.PCI_LABELS[0]: "true"}
PRESENT = names.GPU_PRESENT
DRIVER = f"{names.DEPLOY_PREFIX}driver"
ALL = {PRESENT: "true", names.SHARED: "true"} | {f"{names.DEPLOY_PREFIX}{part}": "true" for part in nodes.DEPLOYED}
TAINTING = Spec(daemonsets=DaemonSets(taint=True))
OUR_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
LOST = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}


def node(
    labels: dict[str, str] | None = None,
    ours: dict[str, str] | None = None,
    taints: list[dict[str, str]] | None = None,
    annotations: dict[str, str] | None = None,
    **managers: dict[str, str],
) -> Node:
    """`ours`: labels that the operator has applied; `managers`: those of others, by manager with _ for -."""
    owners = {names.OPERATOR_MANAGER: ours or {}} | {key.replace("_", "-"): keys for key, keys in managers.items()}
    entries: list[Any] = [
        {"manager": manager, "operation": "Apply", "fieldsV1": {"f:metadata": {"f:labels": _fields(keys)}}}
        for manager, keys in owners.items()
    ]
    entries.append({"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:status": {"f:conditions": {}}}})
    metadata = {
        "name": "gpu-a", "uid": "1", "resourceVersion": "7", "annotations": annotations,
        "labels": (labels or {}) | {key: value for keys in owners.values() for key, value in keys.items()},
        "managedFields": entries,
    }  # fmt: skip
    return msgspec.json.decode(json.dumps({"metadata": metadata, "spec": {"taints": taints}}), type=Node)


def _fields(keys: dict[str, str]) -> dict[str, object]:
    return {f"f:{key}": {} for key in keys}


@pytest.mark.parametrize("label", names.PCI_LABELS)
def test_each_of_the_three_pci_labels_makes_a_gpu_node(label: str) -> None:
    assert nodes.wanted(node({label: "true"}), Spec()).labels == ALL


@pytest.mark.parametrize(
    "labels", [{}, {names.PCI_LABELS[0]: "false"}, {"feature.node.kubernetes.io/pci-8086": "true"}]
)
def test_a_node_without_gpus_gets_nothing(labels: dict[str, str]) -> None:
    found = node(labels)
    want = nodes.wanted(found, TAINTING)
    assert want == nodes.Wanted({}, None)
    assert nodes.is_done(found, want)


def test_what_a_node_sells_is_in_its_label() -> None:
    assert nodes.wanted(node(PCI), Spec(sharing=Sharing(sell="gpus"))).labels[names.SHARED] == "gpus"


def test_a_label_of_ours_follows_the_policy() -> None:
    found = node(PCI, ours=ALL)
    want = nodes.wanted(found, Spec(sharing=Sharing(sell="gpus")))
    assert want.labels == ALL | {names.SHARED: "gpus"}
    assert not nodes.is_done(found, want)


@pytest.mark.parametrize("value", ["true", "gpus", "other"])
def test_what_a_person_wrote_about_sharing_stays(value: str) -> None:
    for sell in ("memory", "gpus"):
        found = node(PCI | {names.SHARED: value})
        assert names.SHARED not in nodes.wanted(found, Spec(sharing=Sharing(sell=sell))).labels


@pytest.mark.parametrize("value", ["false", "true", "paused-for-driver-upgrade"])
def test_a_part_that_a_person_switched_stays_so(value: str) -> None:
    assert nodes.wanted(node(PCI | {DRIVER: value}), Spec()).labels == {k: v for k, v in ALL.items() if k != DRIVER}


def test_an_empty_value_counts_as_none() -> None:
    found = node(PCI | {DRIVER: "", names.SHARED: ""})
    want = nodes.wanted(found, Spec())
    assert want.labels == ALL
    assert nodes.takes_over(found, want.labels)


def test_a_label_of_ours_that_gets_another_value_is_written_whoever_said_the_same() -> None:
    """Without force the API server would refuse it for ever."""
    found = node({}, ours=ALL)
    assert nodes.takes_over(found, {PRESENT: "false"})


def test_a_label_that_was_removed_comes_back() -> None:
    found = node(PCI, ours={key: value for key, value in ALL.items() if key != DRIVER})
    want = nodes.wanted(found, Spec())
    assert want.labels == ALL
    assert not nodes.is_done(found, want)
    assert not nodes.takes_over(found, want.labels)


def test_a_node_that_has_all_has_nothing_to_do() -> None:
    found = node(PCI, ours=ALL)
    assert node_writes.writes(found, nodes.wanted(found, Spec())) == []


def test_where_nothing_shall_be_deployed_only_the_gpu_is_told() -> None:
    found = node(PCI | {names.DEPLOY_NOTHING: "false"}, ours=ALL)
    want = nodes.wanted(found, TAINTING)
    assert want == nodes.Wanted({PRESENT: "true"}, None)
    assert not nodes.is_done(found, want)


def test_gpus_that_were_taken_out_leave_the_word_false() -> None:
    found = node(ours=ALL)
    assert nodes.wanted(found, Spec()).labels == {PRESENT: "false"}
    after = node(ours={PRESENT: "false"})
    assert nodes.is_done(after, nodes.wanted(after, Spec()))
    again = node(PCI, ours={PRESENT: "false"})
    assert nodes.wanted(again, Spec()).labels == ALL


def test_a_person_cannot_deny_that_there_is_a_gpu() -> None:
    found = node(PCI | {PRESENT: "false"})
    (request,) = node_writes.writes(found, nodes.wanted(found, Spec()))
    assert request.query == {"fieldManager": names.OPERATOR_MANAGER, "force": "true"}
    assert isinstance(request.body, dict)
    assert request.body["metadata"]["resourceVersion"] == "7"


def test_with_the_policy_all_of_ours_goes_and_nothing_else() -> None:
    found = node(PCI | {DRIVER: "true"}, ours={PRESENT: "true"})
    (request,) = node_writes.writes(found, nodes.wanted(found, None))
    assert request.body == {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-a", "uid": "1", "labels": {}},
    }  # fmt: skip
    assert request.query == {"fieldManager": names.OPERATOR_MANAGER}


def test_a_node_without_anything_of_ours_is_not_written_when_the_policy_goes() -> None:
    assert node_writes.taken_back(node(PCI | {PRESENT: "true", names.SHARED: "true"})) == []


def test_what_our_other_programs_wrote_is_taken_back_too() -> None:
    found = node(ours=ALL, gpushare_finder=PCI, gpushare_discovery={"nvidia.com/gpu.count": "8"}, kubectl={"a": "b"})
    managers = [(one.query or {})["fieldManager"] for one in node_writes.taken_back(found)]
    assert managers == [names.OPERATOR_MANAGER, names.DISCOVERY_MANAGER, names.FINDER_MANAGER]


def test_only_entries_of_our_programs_are_kept() -> None:
    kept = node(ours=ALL, kubectl={"a": "b"}).metadata.managed_fields or ()
    assert [one.manager for one in kept] == [names.OPERATOR_MANAGER]
    assert managed.labels(Node(), names.OPERATOR_MANAGER) == frozenset()


def test_a_policy_without_discovery_switches_it_off_on_each_node() -> None:
    found = node(PCI, ours=ALL, gpushare_discovery={"nvidia.com/gpu.count": "8"})
    want = nodes.wanted(found, Spec(gfd=Flags(enabled=False)))
    assert want.labels == ALL | {names.DISCOVERED: "false"}
    assert want.ended == {names.DISCOVERY_MANAGER}
    assert nodes.wanted(found, Spec()).ended == set()


def test_a_person_switches_discovery_off_on_a_node() -> None:
    found = node(PCI | {names.DISCOVERED: "false"}, gpushare_discovery={"nvidia.com/gpu.count": "8"})
    assert nodes.wanted(found, Spec()).ended == {names.DISCOVERY_MANAGER}


def test_what_programs_said_that_are_switched_off_is_taken_back() -> None:
    found = node({names.PCI_LABELS[1]: "true"}, ours=ALL, gpushare_finder=PCI)
    assert nodes.wanted(found, Spec()).ended == set()
    want = nodes.wanted(found, Spec(finder=Part(enabled=False)))
    (request,) = node_writes.writes(found, want)
    assert (request.query or {})["fieldManager"] == names.FINDER_MANAGER


def test_what_was_said_of_gpus_goes_with_them() -> None:
    found = node(
        ours={PRESENT: "false"}, gpushare_discovery={"nvidia.com/gpu.count": "8"}, gpushare_validator={"a": "b"}
    )
    assert nodes.wanted(found, Spec()).ended == {names.DISCOVERY_MANAGER, names.VALIDATOR_MANAGER}


def test_a_gpu_node_is_tainted_beside_what_is_there() -> None:
    found = node(PCI, ours=ALL, taints=[LOST])
    (request,) = node_writes.writes(found, nodes.wanted(found, TAINTING))
    assert json.loads(msgspec.json.encode(request.body)) == {
        "metadata": {"resourceVersion": "7", "annotations": {names.TAINTED: "true"}},
        "spec": {"taints": [LOST, OUR_TAINT]},
    }


def test_a_taint_of_ours_that_was_removed_comes_back() -> None:
    found = node(PCI, ours=ALL, annotations={names.TAINTED: "true"})
    assert nodes.wanted(found, TAINTING).taints == nodes.Taints((nodes.TAINT,), True)


@pytest.mark.parametrize("spec", [None, Spec()])
def test_a_taint_of_ours_goes_with_its_reason(spec: Spec | None) -> None:
    found = node(PCI, ours=ALL, taints=[LOST, OUR_TAINT], annotations={names.TAINTED: "true"})
    request = node_writes.writes(found, nodes.wanted(found, spec))[-1]
    assert json.loads(msgspec.json.encode(request.body)) == {
        "metadata": {"resourceVersion": "7", "annotations": {names.TAINTED: None}},
        "spec": {"taints": [LOST]},
    }


def test_a_taint_of_ours_goes_with_the_gpus() -> None:
    found = node(ours={PRESENT: "false"}, taints=[OUR_TAINT], annotations={names.TAINTED: "true"})
    assert nodes.wanted(found, TAINTING).taints == nodes.Taints((), False)


@pytest.mark.parametrize("value", ["present", "mine"])
@pytest.mark.parametrize("spec", [None, Spec(), TAINTING])
def test_a_taint_that_a_person_made_stays(value: str, spec: Spec | None) -> None:
    found = node(PCI, ours=ALL, taints=[OUR_TAINT | {"value": value}])
    assert nodes.wanted(found, spec).taints is None


def test_a_taint_that_a_person_changed_is_his() -> None:
    changed = [OUR_TAINT | {"value": "mine"}]
    found = node(PCI, ours=ALL, taints=changed, annotations={names.TAINTED: "true"})
    for spec in (None, Spec(), TAINTING):
        taints = nodes.wanted(found, spec).taints
        assert taints is not None
        assert not taints.ours
        assert json.loads(msgspec.json.encode(taints.items)) == changed


def test_a_taint_that_is_there_is_not_written_again() -> None:
    found = node(PCI, ours=ALL, taints=[OUR_TAINT], annotations={names.TAINTED: "true"})
    assert nodes.is_done(found, nodes.wanted(found, TAINTING))
