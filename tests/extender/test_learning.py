"""What the extender learns from all pods and nodes it sees: CPU and memory in use, and which pods come."""

from collections.abc import Iterable
from typing import cast

import pytest

from gpushare.core.facts import names, objects
from gpushare.core.facts.packing.model import Ask, GpuClass, Mixture, PodType
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.scheduling.life import Life
from gpushare.core.scheduling.reach import Reach
from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.extender import watches
from gpushare.extender.background import learning
from gpushare.extender.events import Announcer
from gpushare.extender.metrics import Metrics
from gpushare.kube.events import Recorder
from tests.support import embedded_objects, extender_in_process
from tests.support.builders import api_pod, node

MIB = "{}Mi"


class World:
    """An extender's watches, and what they show."""

    def __init__(self, policy: str = "vrc") -> None:
        self.ledger, announcer = Ledger(), Announcer(cast(Recorder, None), Ledger())
        self.nodes = watches.Nodes(self.ledger, announcer, unit=None, clock=lambda: 0.0)
        rules = self.nodes.by_rules
        self.life = Life(self.ledger, policy=policy, reach=Reach(rules.allowed, rules.open_to, rules.reserved))
        self.pods = watches.Pods(
            self.life, announcer, Metrics(self.ledger), unit=None, identity="x", clock=lambda: 0.0
        )  # fmt: skip

    def node(
        self, name: str, *gpus: int, cpu: str = "8", memory: int = 1000, labels: dict[str, str] | None = None
    ) -> None:
        made = node(*gpus, name=name) if gpus else objects.Node(objects.Metadata(name=name))
        made.metadata.labels = labels or {}
        has = made.status.allocatable or {}
        made.status.allocatable = {**has, "cpu": cpu, "memory": MIB.format(memory)}
        self.nodes.upsert(made)

    def left(self, name: str) -> tuple[int, int]:
        return self.ledger.supplies.left(name)

    def learn(self) -> Mixture:
        return self.pods.learning.mix.mixture(self.ledger, self.life.reach)


def plain(name: str, cpu: str, memory: int, *, on: str = "", phase: str = "Running", owner: str = "") -> objects.Pod:
    """A pod without GPUs. `owner`: the kind of its controller."""
    made = api_pod(name=name, on=on, phase=phase)
    made.spec.containers = [objects.Container("main", None, asked(cpu, memory))]
    if owner:
        made.metadata.owner_references = [objects.OwnerReference(owner, "o", True)]
    return made


def with_gpu(name: str, units: int, cpu: str, memory: int, *, on: str = "", gpu: str = "") -> objects.Pod:
    made = api_pod(units, name=name, on=on)
    assert made.spec.containers
    assert made.spec.containers[0].resources is not None
    made.spec.containers[0].resources.requests = asked(cpu, memory).requests
    made.spec.node_selector = {"gpu": gpu} if gpu else None
    return made


def asked(cpu: str, memory: int) -> objects.ResourceNeeds:
    return objects.ResourceNeeds(requests={"cpu": cpu, "memory": MIB.format(memory)})


# CPU and memory


def test_a_pod_without_gpus_takes_cpu_and_memory_of_its_node_while_it_runs() -> None:
    world = World()
    world.node("a", 8)
    assert world.left("a") == (8000, 1000)
    world.pods.upsert(plain("web", "500m", 100, on="a"))
    assert world.left("a") == (7500, 900)
    world.pods.upsert(plain("web", "1", 100, on="a"))  # resized
    assert world.left("a") == (7000, 900)
    world.pods.upsert(plain("web", "1", 100, on="a", phase="Succeeded"))
    assert world.left("a") == (8000, 1000)


def test_a_pod_without_gpus_that_waits_or_is_deleted_takes_nothing() -> None:
    world = World()
    world.node("a", 8)
    world.pods.upsert(plain("waits", "1", 100))
    world.pods.upsert(plain("gone", "1", 100, on="a"))
    world.pods.remove(plain("gone", "1", 100, on="a"))
    assert world.left("a") == (8000, 1000)


def test_pods_that_a_new_list_does_not_show_take_nothing() -> None:
    world = World()
    world.node("a", 8)
    for name in ("one", "two"):
        world.pods.upsert(plain(name, "1", 100, on="a"))
    world.pods.relisted({"uid-two"})
    assert world.left("a") == (7000, 900)


def test_a_pod_with_gpus_takes_cpu_and_memory_too() -> None:
    world = World()
    world.node("a", 8)
    world.pods.upsert(with_gpu("train", 4, "2", 300, on="a"))
    assert world.left("a") == (6000, 700)


def test_it_does_not_matter_whether_pods_or_nodes_are_shown_first() -> None:
    world = World()
    world.pods.upsert(plain("web", "500m", 100, on="a"))
    world.node("a", 8)
    assert world.left("a") == (7500, 900)


def test_a_node_may_become_larger_and_a_heartbeat_changes_nothing() -> None:
    world = World()
    world.node("a", 8)
    view = world.ledger.view("a", world.life.facts(api_pod(1), None))
    world.node("a", 8)
    assert world.ledger.view("a", world.life.facts(api_pod(1), None)) is view
    world.node("a", 8, cpu="16")
    assert world.left("a") == (16000, 1000)


# Which pods come


def test_pods_count_as_they_ask_with_the_gpus_that_their_selector_allows() -> None:
    world = World()
    world.node("a", 8, 8, labels={"gpu": "small"})
    world.pods.upsert(with_gpu("one", 4, "2", 300))
    world.pods.upsert(with_gpu("two", 4, "2", 300, on="a"))
    assert world.learn().pods == (PodType(Ask(2000, 300, 1, 4), 2),)
    assert world.learn().gpus == (GpuClass("T4", 8, 2),)
    assert (world.learn().cpu, world.learn().memory) == (8000, 1000)


def test_pods_without_gpus_count_on_nodes_that_share_gpus_and_not_if_they_come_with_a_node() -> None:
    world = World()
    world.pods.upsert(plain("early", "1", 100, on="a"))
    world.node("a", 8)
    world.node("other")
    world.pods.upsert(plain("elsewhere", "1", 100, on="other"))
    world.pods.upsert(plain("daemon", "1", 100, on="a", owner="DaemonSet"))
    world.pods.upsert(plain("static", "1", 100, on="a", owner="Node"))
    world.pods.upsert(plain("web", "1", 100, on="a", owner="ReplicaSet"))
    assert world.learn().pods == (PodType(Ask(1000, 100, 0, 0), 2),)
    assert world.learn().cpu == 8000


def test_an_invalid_request_is_not_expected() -> None:
    world = World()
    world.node("a", 8)
    made = with_gpu("bad", 4, "1", 100)
    made.metadata.annotations = {names.POLICY: "none such"}
    world.pods.upsert(made)
    assert world.learn().pods == ()


def test_a_restarted_extender_expects_the_same_pods_though_they_are_bound_now() -> None:
    def nodes(world: World) -> None:
        world.node("a", 8, labels={"gpu": "small"})
        world.node("b", 16, labels={"gpu": "large"})

    before, after = World(), World()
    nodes(before)
    pods = [with_gpu(str(i), 2 + i % 3, "1", 100, gpu=("", "large")[i % 2]) for i in range(9)]
    pods += [plain(f"plain {i}", "1", 50, on="a") for i in range(3)]
    _show(before, pods)
    bound = [with_gpu(str(i), 2 + i % 3, "1", 100, gpu=("", "large")[i % 2], on="b") for i in range(9)]
    _show(after, [*pods[9:], *bound[::-1]])
    nodes(after)
    assert before.learn() == after.learn()


def _show(world: World, pods: Iterable[objects.Pod]) -> None:
    for pod in pods:
        world.pods.upsert(pod)


# When policies learn


async def test_policies_learn_when_the_first_pod_comes_and_not_at_each() -> None:
    world = World()
    world.node("a", 8)
    learns = world.pods.learning
    await learns.look(0.0)
    assert world.ledger.mixture.gpus == (GpuClass("T4", 8, 1),)
    assert not world.ledger.mixture.pods
    for number in (1, 2):
        world.pods.upsert(with_gpu(str(number), 4, "1", 100))
        await learns.look(1.0)
        assert [kind.count for kind in world.ledger.mixture.pods] == [1]


async def test_policies_learn_of_new_nodes_after_a_minute() -> None:
    world = World()
    world.node("a", 8)
    learns = world.pods.learning
    await learns.look(0.0)
    world.node("b", 16)
    await learns.look(learning.NODES_SECONDS - 1)
    assert len(world.ledger.mixture.gpus) == 1
    await learns.look(learning.NODES_SECONDS)
    assert len(world.ledger.mixture.gpus) == 2


async def test_policies_learn_of_pods_that_come_slowly() -> None:
    world = World()
    world.node("a", 8)
    for number in range(60):
        world.pods.upsert(with_gpu(str(number), 4, "1", 100))
        await world.pods.learning.look(number * learning.NODES_SECONDS)
    (kind,) = world.ledger.mixture.pods
    assert kind.count > 40


async def test_what_was_learned_is_ready_before_a_scheduler_asks() -> None:
    world = World("vrc")
    world.node("a", 8)
    world.pods.upsert(with_gpu("one", 4, "1", 100))
    await world.pods.learning.look(0.0)
    made = world.ledger.scorer("vrc")
    assert made is world.ledger.scorer("vrc")
    assert world.ledger.packs_by == frozenset()  # nothing had to be made when it was asked for


async def test_with_a_policy_that_packs_nothing_is_answered_before_it_has_learned() -> None:
    async with ApiServer(bookmark_seconds=0.2) as server:
        embedded_objects.create(server, embedded_objects.node("a", 8000, 8000))
        embedded_objects.create(server, embedded_objects.pod("first", 1000))
        async with extender_in_process.running(server, policy="vrc") as running:
            assert [kind.ask.units for kind in running.ledger.mixture.pods] == [1000]
            made = embedded_objects.create(server, embedded_objects.pod("train", 4000))
            answer = await running.filter(made, "a")
            assert answer["NodeNames"] == ["a"]


async def test_a_bug_in_learning_keeps_no_scheduler_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(learning, "_scorers", fail)
    async with ApiServer(bookmark_seconds=0.2) as server:
        embedded_objects.create(server, embedded_objects.node("a", 8000, 8000))
        async with extender_in_process.running(server, policy="vrc") as running:
            made = embedded_objects.create(server, embedded_objects.pod("train", 4000))
            assert (await running.filter(made, "a"))["NodeNames"] == ["a"]
