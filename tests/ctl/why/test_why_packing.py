"""`why` with a policy that packs: the node and GPU that an extender would take that has just started."""

from typing import cast

import msgspec
import pytest

from gpushare.core.facts import objects
from gpushare.core.facts.model import Request
from gpushare.core.facts.policies import POLICIES
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.scheduling.life import Life
from gpushare.core.scheduling.reach import Reach
from gpushare.extender import watches
from gpushare.extender.events import Announcer
from gpushare.extender.metrics import Metrics
from gpushare.kube.events import Recorder
from tests.ctl.why.cluster import Cluster, ask
from tests.support.objects import Object

PACKING = [name for name, policy in POLICIES.items() if policy.packing is not None]
NODES = {
    "gpu-a": {"gpus": [16276, 16276], "cpu": 16},
    "gpu-b": {"gpus": [24268, 24268], "cpu": 32},
    "gpu-c": {"gpus": [40536, 40536], "cpu": 64},
}
POD = """
kind: Pod
metadata: {{name: new, annotations: {{gpushare.io/policy: {policy}}}}}
spec:
  containers: [{{name: main, resources: {{limits: {{aliyun.com/gpu-mem: {memory}}}, requests: {{cpu: {cpu}}}}}}}]
"""


def cluster() -> Cluster:
    """Three sizes of GPUs, some in use, and CPU that pods without GPUs take."""
    pods: list[Object] = [
        {"name": f"run-{i}", "node": node, "containers": {"main": {"mem": memory, "cpu": cpu}}, "gpu": i % 2}
        for i, (node, memory, cpu) in enumerate(
            [("gpu-a", 4000, 1), ("gpu-a", 9000, 4), ("gpu-b", 12000, 2), ("gpu-b", 4000, 2), ("gpu-c", 20000, 6)]
        )
    ]
    pods += [{"name": f"web-{i}", "node": node, "containers": {"main": {"cpu": 5}}} for i, node in enumerate(NODES)]
    return Cluster(NODES, pods)


def of_extender(known: Cluster, policy: str, draft: Object) -> tuple[str, int]:
    """Node and GPU that an extender takes."""
    ledger = Ledger()
    announcer = Announcer(cast(Recorder, None), ledger)
    nodes = watches.Nodes(ledger, announcer, unit=None, clock=lambda: 0.0)
    life = Life(ledger, policy=policy, reach=Reach(nodes.by_rules.allowed, nodes.by_rules.open_to))
    pods = watches.Pods(life, announcer, Metrics(ledger), unit=None, identity="x", clock=lambda: 0.0)
    for made in known.nodes.values():
        nodes.upsert(msgspec.convert(made, objects.Node))
    for pod in known.pods.values():
        life.observe(facts := life.facts(item := msgspec.convert(pod, objects.Pod), None), 0.0)
        pods.learning.mix.see(item, facts)
        if facts.request is None:
            ledger.use(facts.uid, facts.node, facts.cpu, facts.memory)
    ledger.learn(pods.learning.mix.mixture(ledger, life.reach))
    asked = life.facts(msgspec.convert(draft, objects.Pod), None)
    assert isinstance(asked.request, Request)
    (node,) = life.choose(asked, list(NODES), 0.0).fits
    holding = ledger.holding(asked.uid)
    assert holding is not None
    assert holding.charges is not None
    return node, holding.charges[0].gpu


@pytest.mark.parametrize("policy", PACKING)
@pytest.mark.parametrize(("memory", "cpu"), [(4000, 1), (9000, 4), (15000, 8), (30000, 2)])
def test_before_a_pod_exists_its_place_is_told_as_the_extender_would_choose_it(
    policy: str, memory: int, cpu: int
) -> None:
    known = cluster()
    answer = ask(known, filename="-", stdin=POD.format(policy=policy, memory=memory, cpu=cpu), output="json").json
    (way,) = answer["items"][0]["ways"] if "items" in answer else answer["ways"]
    (draft,) = known.tried
    draft["metadata"] |= {"uid": "new", "name": "new", "namespace": "default"}
    node, gpu = of_extender(cluster(), policy, draft)
    assert (way["node"], [spot["gpu"] for spot in way["spots"]]) == (node, [gpu])


def test_the_policy_of_the_extender_may_be_named_and_no_points_are_told() -> None:
    pod = POD.replace(", annotations: {{gpushare.io/policy: {policy}}}", "").format(memory=4000, cpu=1)
    answer = ask(cluster(), filename="-", stdin=pod, policy="best-fit")
    assert "would fit now: gpu-a GPU 1" in answer.out
    assert "points" not in answer.out


def test_a_pod_that_waits_is_told_its_place_too() -> None:
    known = cluster()
    waits = {"name": "late", "containers": {"main": {"mem": 4000, "cpu": 1}}, "policy": "best-fit"}
    known.pods |= Cluster({}, [waits]).pods
    assert "gpu-a GPU 1" in ask(known, pod="late").out
