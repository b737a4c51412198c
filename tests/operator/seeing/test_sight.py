"""The operator's copy of the cluster: what wakes it, and that nothing old replaces something new."""

from typing import Any

import msgspec
import pytest

from gpushare.core.facts import names
from gpushare.operator.managed import Node
from gpushare.operator.seeing import sight
from gpushare.operator.seeing.keys import Key
from gpushare.operator.seeing.models import Live, Meta, Pod, Policy

Object = dict[str, Any]

KEY = Key("DaemonSet", "gpu-operator", "x")


class Wakes:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


@pytest.fixture
def wakes() -> Wakes:
    return Wakes()


def live(version: str) -> Live:
    return Live(Meta(name="x", namespace="gpu-operator", resource_version=version))


def node(version: str = "1", labels: Object | None = None, **more: Any) -> Node:
    metadata = {"name": "a", "resourceVersion": version, "labels": labels or {}, **more.pop("metadata", {})}
    return msgspec.convert({"metadata": metadata, **more}, Node)


def test_an_answer_is_seen_before_the_watch_shows_it(wakes: Wakes) -> None:
    owned = sight.Owned(wakes)
    owned.put(KEY, live("5"), owned.gone)
    assert owned.found[KEY].metadata.resource_version == "5"
    owned.of(*KEY[:2]).upsert(live("5"))
    assert wakes.count == 0, "what is known already wakes nobody"


def test_an_answer_that_is_older_than_what_the_watch_has_shown_is_dropped(wakes: Wakes) -> None:
    """Else a status would be missed that no further event brings."""
    owned = sight.Owned(wakes)
    before = owned.gone
    owned.of(*KEY[:2]).upsert(live("10"))
    owned.put(KEY, live("9"), before)
    assert owned.found[KEY].metadata.resource_version == "10"
    policies = sight.Policies(wakes)
    policies.upsert(Policy(Meta(name="p", resource_version="10")))
    policies.put(Policy(Meta(name="p", resource_version="9")))
    assert policies.found["p"].metadata.resource_version == "10"
    nodes = sight.Nodes(wakes)
    nodes.upsert(node("10"))
    nodes.put(node("9", {"old": "true"}))
    assert nodes.found["a"].metadata.labels == {}


def test_an_answer_about_what_is_gone_by_now_is_dropped(wakes: Wakes) -> None:
    owned = sight.Owned(wakes)
    sink, before = owned.of(*KEY[:2]), owned.gone
    sink.upsert(live("5"))
    sink.remove(live("6"))
    owned.put(KEY, live("5"), before)
    assert owned.found == {}
    nodes = sight.Nodes(wakes)
    nodes.put(node())
    assert nodes.found == {}
    policies = sight.Policies(wakes)
    policies.put(Policy(Meta(name="p", resource_version="9")))
    assert policies.found == {}


def test_a_heartbeat_wakes_nobody_and_its_version_is_kept(wakes: Wakes) -> None:
    nodes = sight.Nodes(wakes)
    nodes.upsert(node("1", {"a": "b"}))
    before = wakes.count
    beat = {"status": {"capacity": {"cpu": "4"}, "conditions": [{"type": "Ready", "lastHeartbeatTime": "now"}]}}
    nodes.upsert(node("2", {"a": "b"}, metadata={"annotations": {"others": "change"}}, **beat))
    assert wakes.count == before
    assert nodes.found["a"].metadata.resource_version == "2"


@pytest.mark.parametrize(
    "change",
    [
        {"labels": {"a": "c"}},
        {"metadata": {"annotations": {names.VALIDATION: "{}"}}},
        {"spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}},
        {"status": {"capacity": {names.GPU_MEM: "100"}}},
    ],
)
def test_what_decisions_read_wakes(wakes: Wakes, change: Object) -> None:
    nodes = sight.Nodes(wakes)
    nodes.upsert(node("1"))
    before = wakes.count
    nodes.upsert(node("2", **change))
    assert wakes.count == before + 1


def test_only_what_changes_of_a_pod_wakes(wakes: Wakes) -> None:
    pods = sight.Pods(wakes)
    first = msgspec.convert({"metadata": {"uid": "1", "name": "p"}, "status": {"phase": "Pending"}}, Pod)
    pods.upsert(first)
    pods.upsert(msgspec.convert({"metadata": {"uid": "1", "name": "p"}, "status": {"phase": "Running"}}, Pod))
    assert wakes.count == 1
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    pods.upsert(msgspec.convert({"metadata": {"uid": "1", "name": "p"}, "status": ready}, Pod))
    assert wakes.count == 2
    pods.remove(first)
    assert pods.found == {}


def test_a_list_forgets_what_is_not_in_it(wakes: Wakes) -> None:
    owned = sight.Owned(wakes)
    here, elsewhere = owned.of("Role", "gpu-operator"), owned.of("Role", "kube-system")
    for sink, namespace in ((here, "gpu-operator"), (elsewhere, "kube-system")):
        sink.upsert(Live(Meta(name="x", namespace=namespace)))
    here.relisted(set())
    assert list(owned.found) == [Key("Role", "kube-system", "x")]
    nodes = sight.Nodes(wakes)
    nodes.upsert(node())
    nodes.relisted(set())
    assert (nodes.found, nodes.facts) == ({}, {})
