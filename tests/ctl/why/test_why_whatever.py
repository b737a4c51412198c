"""Whatever a cluster looks like, `why` has an answer: no request, node or rule makes it fail or contradict itself."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gpushare.core.facts import request
from gpushare.core.facts.model import PodFacts, Refusal, Request
from gpushare.core.ledger.ledger import Ledger
from gpushare.view import snapshot
from gpushare.view.why.pod_details import Pod
from tests.ctl.why.cluster import NOW, Cluster, ask
from tests.support.builders import node_state

Words = dict[str, Any]

GPUS = st.lists(
    st.one_of(st.integers(1, 8), st.fixed_dictionaries({"total": st.integers(1, 8), "ok": st.booleans()})),
    min_size=1,
    max_size=3,
)
TAINT = {"key": "dedicated", "value": "train", "effect": "NoSchedule"}
ODD_NODES: Words = {
    "unit": st.just("GiB"),
    "state": st.just("draining"),
    "nvidia": st.just(1),
    "cordoned": st.booleans(),
    "taints": st.just([TAINT]),
    "labels": st.just({"disk": "ssd"}),
    "cpu": st.integers(0, 2),
}
ODD_AMOUNTS = st.one_of(
    st.none(), st.sampled_from(["4Gi", "x", "1.5"]), st.builds(lambda n: {"count": n}, st.integers(1, 3))
)
ODD_PODS: Words = {
    "init": st.dictionaries(st.just("setup"), st.integers(0, 8)),
    "split": st.sampled_from([1, 2, 3, "x"]),
    "unit": st.sampled_from(["MiB", "GiB"]),
    "selector": st.just({"disk": "ssd"}),
    "tolerations": st.just([{"operator": "Exists"}]),
    "gates": st.just(["g"]),
    "cpu": st.integers(0, 2),
    "deleting": st.booleans(),
    "waits": st.sampled_from(["", "2 Insufficient cpu.", "1 no GPU is wholly free."]),
    "phase": st.sampled_from(["Pending", "Running", "Failed"]),
    "no_preemption": st.booleans(),
    "node": st.sampled_from(["n0", "gone"]),
}  # fmt: skip


def with_some(draw: st.DrawFn, plain: Words, odd: Words) -> Words:
    """What is usual, and at most two things that are not."""
    chosen = draw(st.lists(st.sampled_from(sorted(odd)), max_size=2, unique=True))
    return {**plain, **{word: draw(odd[word]) for word in chosen}}


def pod(draw: st.DrawFn, name: str, direct: bool, most: int) -> Words:
    amounts = st.integers(1, most) if draw(st.integers(0, 4)) else ODD_AMOUNTS
    containers = draw(st.dictionaries(st.sampled_from(["main", "helper"]), amounts, min_size=1))
    priority = draw(st.integers(-1, 1))
    return with_some(draw, {"name": name, "containers": containers, "direct": direct, "priority": priority}, ODD_PODS)


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """A few small nodes, pods on some of their GPUs, and x, which is asked about."""
    direct = draw(st.booleans())
    pin = "direct" if direct else "plugin"
    nodes = {
        f"n{i}": with_some(draw, {"gpus": draw(GPUS), "pin": pin}, ODD_NODES) for i in range(draw(st.integers(0, 3)))
    }
    others = []
    for i in range(draw(st.integers(0, 6))):
        at, gpu = f"n{draw(st.integers(0, 2))}", draw(st.integers(0, 2))
        visible = {f"gpushare.io/visible-{c}": f"GPU-{at}-{gpu}" for c in range(2)}
        place = {"node": at, "gpu": gpu, "annotations": visible, "namespace": "other"}
        others.append({**pod(draw, f"p{i}", direct, 4), **place})
    return Cluster(nodes, [*others, pod(draw, "x", direct, 10)])


@given(clusters(), st.sampled_from(["", "wide"]), st.sampled_from([None, 20, 80]))
def test_there_is_an_answer_and_it_is_about_the_pod(cluster: Cluster, output: str, width: int | None) -> None:
    answer = ask(cluster, "x", output=output, width=width)
    assert answer.out.startswith("x ")
    assert answer.out.endswith("\n")
    assert not answer.out.endswith("\n\n")
    assert "None" not in answer.out
    assert ".." not in answer.out


@given(clusters())
def test_verdict_owner_and_exit_code_agree(cluster: Cluster) -> None:
    answer = ask(cluster, "x", output="json")
    said = answer.json
    assert answer.code == (0 if said["verdict"] in ("runs", "fits") else 1)
    rows = [(node["fits"], node["scheduler"] is None) for node in said["nodes"]]
    if said["code"] == "Fits":
        assert (True, True) in rows
    if said["verdict"] in ("refused", "never"):
        assert (True, True) not in rows
        assert said["owner"] == ("kube-scheduler" if (True, False) in rows else "gpushare")


@given(clusters())
def test_where_it_is_said_to_fit_the_ledger_takes_it(cluster: Cluster) -> None:
    said = ask(cluster, "x", output="json").json
    if said["code"] == "Fits":
        ledger = snapshot.read(cluster, NOW).ledger
        assert not isinstance(ledger.assume(_facts(cluster), said["ways"][0]["node"], "binpack", NOW), Refusal)


@given(clusters())
def test_what_is_said_to_help_helps(cluster: Cluster) -> None:
    said = ask(cluster, "x", output="json").json
    for way in said["ways"]:
        helped = _after(cluster, way)
        if helped is not None:
            ledger, asked = helped
            facts = msgspec.structs.replace(_facts(cluster), request=asked)
            assert not isinstance(ledger.assume(facts, way["node"], "binpack", NOW), Refusal), way


def _facts(cluster: Cluster) -> PodFacts:
    return request.facts(msgspec.convert(cluster.pods["default", "x"], type=Pod), None)


def _after(cluster: Cluster, way: Words) -> tuple[Ledger, Request] | None:
    """The ledger and the request once somebody has done what a way says; None for those that need no proof here."""
    ledger, asked = snapshot.read(cluster, NOW).ledger, _facts(cluster).request
    assert isinstance(asked, Request)
    share = asked.shares[0]
    if way["way"] == "shrink":
        room = node_state(ledger, way["node"]).room
        assert room is not None
        if way["units"] in [gpu.total for gpu in room.facts.gpus if gpu.index == way["gpu"]]:
            for uid in [holding.pod.uid for holding in ledger.holdings()]:
                ledger.forget(uid)  # if no GPU is large enough, it is told the size of the largest, full or not
        changed = msgspec.structs.replace(share, units=way["units"])
        return ledger, msgspec.structs.replace(asked, shares=(changed,))
    if way["way"] in ("end", "evict"):
        uids = {f"{h.pod.namespace}/{h.pod.name}": h.pod.uid for h in ledger.holdings()}
        for name in way["pods"] if way["way"] == "evict" else way["pods"][:1]:
            ledger.forget(uids[name])
        return ledger, asked
    return None
