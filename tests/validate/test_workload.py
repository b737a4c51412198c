"""A real pod is tried: it asks for the smallest share, takes nothing from others, and has to see exactly its GPU."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from gpushare.core.annotations import node_gpus
from gpushare.core.facts import intree, names
from gpushare.core.facts.model import Gpu, Pin, Sold
from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.kube import client
from gpushare.kube.auth import login
from gpushare.kube.errors import ApiError
from gpushare.validate.rules import verdict
from gpushare.validate.rules.verdict import Verdict
from gpushare.validate.workload import check, pod, room, trial
from gpushare.validate.workload.check import Workload
from gpushare.validate.workload.trial import Config, Trial
from tests.support import embedded_objects
from tests.support.wait import eventually, until

NODE = "gpu-a"
GPUS = (Gpu(0, "GPU-0", 16276, True, ""), Gpu(1, "GPU-1", 16276, True, ""))
Object = dict[str, Any]


def node(pin: Pin = Pin.DIRECT, gpus: tuple[Gpu, ...] = GPUS, **words: Any) -> intree.Node:
    written = node_gpus.write("MiB", pin, gpus, **words)
    total = sum(gpu.total for gpu in gpus)
    offer = {names.GPU_MEM: str(total), names.GPU_COUNT: str(len(gpus)), names.MPS_GPU: "8"}
    if pin is Pin.NVIDIA:
        offer = {names.NVIDIA_GPU: str(len(gpus))}
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "250", **offer}
    return msgspec.convert(
        {
            "metadata": {"name": NODE, "annotations": {names.NODE_GPUS: written}},
            "status": {"capacity": amounts, "allocatable": amounts},
        },
        intree.Node,
    )


SELLS: Object = {"pin": Pin.NVIDIA, "sold": (Sold(names.NVIDIA_GPU, 1, "none"),)}


def other(name: str, resource: str, amount: int, on: str = "", **spec: Any) -> intree.Pod:
    made: Object = {
        "metadata": {"name": name, "namespace": "team", "uid": name},
        "spec": {"nodeName": on, "containers": [{"resources": {"limits": {resource: str(amount)}}}], **spec},
        "status": {"phase": "Running" if on else "Pending"},
    }
    return msgspec.convert(made, intree.Pod)


def obstacle(found: intree.Node, *pods: intree.Pod) -> Verdict | None:
    asks = room.asked(found)
    assert asks is not None
    return room.obstacle(asks, found, pods, 0.0)


# What is asked, and whether it may be


@pytest.mark.parametrize(
    ("words", "resource", "scheduler"),
    [
        ({}, "aliyun.com/gpu-mem", "gpu-scheduler"),
        ({"slots": 4, "only_mps": True}, "keti.com/mpsgpu", "gpu-scheduler"),
        (SELLS, "nvidia.com/gpu", "default-scheduler"),
        ({"pin": Pin.NVIDIA, "sold": (Sold("nvidia.com/gpu.shared", 4, "time-slicing"),)}, "nvidia.com/gpu.shared",
         "default-scheduler"),
    ],
    ids=["shares", "MPS", "GPUs", "replicas"],
)  # fmt: skip
def test_the_smallest_share_is_asked_for(words: Object, resource: str, scheduler: str) -> None:
    asks = room.asked(node(**words))
    assert asks is not None
    assert (asks.resource, asks.scheduler) == (resource, scheduler)
    made = pod.made(asks, pod.Given("ns", NODE, "label", "gpushare:1"))
    assert made["spec"]["containers"][0]["resources"] == {"limits": {resource: "1"}}
    assert made["spec"]["schedulerName"] == scheduler


def test_on_a_free_node_nothing_is_in_the_way() -> None:
    assert obstacle(node()) is None
    assert obstacle(node(**SELLS)) is None
    assert obstacle(node(slots=4, only_mps=True)) is None


def test_nothing_is_tried_where_nothing_is_free() -> None:
    whole = [other(f"p{i}", names.NVIDIA_GPU, 1, NODE) for i in range(2)]
    assert obstacle(node(**SELLS), *whole) == verdict.skipped("no nvidia.com/gpu is free on this node")
    assert obstacle(node(**SELLS), whole[0]) is None
    full = [other(f"p{i}", names.GPU_MEM, 16276, NODE) for i in range(2)]
    assert obstacle(node(), *full) == verdict.skipped("no aliyun.com/gpu-mem is free on this node")


def test_nothing_is_taken_from_pods_that_wait() -> None:
    said = obstacle(node(), other("llm", names.GPU_MEM, 30000))
    assert said is not None
    assert said.why == "pods wait for aliyun.com/gpu-mem, such as team/llm: nothing is taken from them"
    assert obstacle(node(), other("whole", names.GPU_COUNT, 1)) is not None
    assert obstacle(node(**SELLS), other("llm", names.NVIDIA_GPU, 1)) is not None


def test_pods_that_cannot_come_here_or_ask_for_something_else_are_not_waited_for() -> None:
    elsewhere = other("llm", names.GPU_MEM, 30000, nodeSelector={"zone": "b"})
    gated = other("gated", names.GPU_MEM, 30000, schedulingGates=[{"name": "quota"}])
    assert obstacle(node(), elsewhere, gated, other("cpu", "cpu", 3)) is None


def test_nothing_is_tried_on_a_cordoned_node() -> None:
    found = node()
    found.spec.unschedulable = True
    assert obstacle(found) == verdict.skipped(room.CORDONED)


def test_a_node_without_a_healthy_gpu_sells_nothing() -> None:
    assert room.asked(node(gpus=(Gpu(0, "GPU-0", 16276, False, "Xid 79"),))) is None


def test_the_pod_may_do_nothing_and_goes_to_its_node_only() -> None:
    asks = room.asked(node())
    assert asks is not None
    given = pod.Given("ns", NODE, "label", "img", ("secret",), "other-scheduler", "nvidia", ("validator-x", "uid-x"))
    made = pod.made(asks, given)
    spec = made["spec"]
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert terms == [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [NODE]}]}]
    assert (spec["schedulerName"], spec["runtimeClassName"]) == ("other-scheduler", "nvidia")
    assert (spec["automountServiceAccountToken"], spec["imagePullSecrets"]) == (False, [{"name": "secret"}])
    assert "priorityClassName" not in spec
    assert made["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Pod", "name": "validator-x", "uid": "uid-x"}
    ]
    container = spec["containers"][0]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert spec["securityContext"]["runAsNonRoot"]


# What it sees


def tried(seen: Object | str | None, *, gpu: int | None = 0, phase: str = "Succeeded", **status: Any) -> pod.Tried:
    message = seen if isinstance(seen, str) else json.dumps(seen)
    allocation = {names.ALLOCATION: json.dumps({"0": {str(gpu): 1}})} if gpu is not None else {}
    ended = {"terminated": {"exitCode": 0, "reason": "Completed", "message": message}} if seen is not None else {}
    return msgspec.convert(
        {
            "metadata": {"name": "x", "annotations": allocation},
            "spec": {"nodeName": NODE},
            "status": {"phase": phase, "containerStatuses": [{"state": ended}] if seen is not None else [], **status},
        },
        pod.Tried,
    )


def judged(found: intree.Node, one: pod.Tried, waited: float = 1.0) -> Verdict | None:
    asks = room.asked(found)
    assert asks is not None
    return pod.judged(one, asks, asks.scheduler, waited)


def test_a_pod_that_sees_exactly_its_gpu_passes() -> None:
    said = judged(node(), tried({"gpus": ["GPU-1"], "visible": "GPU-1"}, gpu=1))
    assert said == ("passed", "a pod with 1 aliyun.com/gpu-mem sees exactly GPU-1", "")


def test_a_pod_that_sees_more_or_another_gpu_fails() -> None:
    for gpus, shown in ((["GPU-0", "GPU-1"], "GPU-0, GPU-1"), (["GPU-1"], "GPU-1"), ([], "none")):
        said = judged(node(), tried({"gpus": gpus}))
        assert said is not None
        assert (said.state, said.why) == ("failed", f"a pod with 1 aliyun.com/gpu-mem was given GPU-0 and sees {shown}")


def test_where_kubelet_alone_knows_it_is_one_gpu_and_the_one_that_the_env_names() -> None:
    sells = node(**SELLS)
    one = {"gpus": ["GPU-1"], "visible": "GPU-1"}
    assert judged(sells, tried(one, gpu=None)) == ("passed", "a pod with 1 nvidia.com/gpu sees exactly GPU-1", "")
    by_cdi = {"gpus": ["GPU-0"], "visible": "void"}
    for seen, state in ((by_cdi, "passed"), ({"gpus": ["GPU-1"], "visible": "GPU-0"}, "failed"),
                        ({"gpus": ["GPU-0", "GPU-1"], "visible": "all"}, "failed"), ({"gpus": []}, "failed"),
                        ({"gpus": ["GPU-9"]}, "failed")):  # fmt: skip
        said = judged(sells, tried(seen, gpu=None))
        assert said is not None
        assert said.state == state


def test_a_pod_without_a_driver_says_so() -> None:
    said = judged(node(), tried({"failure": "libnvidia-ml.so.1 not found: no driver"}, phase="Failed"))
    assert said is not None
    assert said.why == "a pod with 1 aliyun.com/gpu-mem has no driver: libnvidia-ml.so.1 not found: no driver"
    assert "operator.runtimeClass" in said.way


def test_a_pod_that_kubelet_refuses_says_why() -> None:
    refused = tried(None, phase="Failed", reason="UnexpectedAdmissionError", message="Allocate failed: no GPU")
    said = judged(node(), refused)
    assert said is not None
    assert said.why == "kubelet refused a pod with 1 aliyun.com/gpu-mem: Allocate failed: no GPU"


def test_a_pod_that_ends_without_a_word_shows_its_last_line() -> None:
    said = judged(node(), tried("exec format error", phase="Failed"))
    assert said is not None
    assert said.why == "a pod with 1 aliyun.com/gpu-mem ended without a word: exec format error"


def test_a_pod_that_is_not_placed_says_the_schedulers_words_after_a_while() -> None:
    waits = tried(None, phase="Pending", conditions=[
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"}
    ])  # fmt: skip
    waits.spec.node_name = None
    assert judged(node(), waits) is None
    said = judged(node(), waits, pod.PLACED_SECONDS)
    assert said is not None
    assert said.why == "a pod with 1 aliyun.com/gpu-mem is not placed: 0/3 nodes are available"
    waits.status.conditions = None
    said = judged(node(), waits, pod.PLACED_SECONDS)
    assert said is not None
    assert said.why.endswith("is not placed: gpu-scheduler has not looked at it")


def test_a_pod_whose_image_cannot_be_had_says_so_and_one_that_starts_has_time() -> None:
    held = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}
    starting = tried(None, phase="Pending", containerStatuses=[{"state": held}])
    said = judged(node(), starting, pod.PLACED_SECONDS)
    assert said is not None
    assert said.why.endswith("does not start: ImagePullBackOff: Back-off pulling image")
    creating = tried(None, phase="Pending", containerStatuses=[{"state": {"waiting": {"reason": "ContainerCreating"}}}])
    assert judged(node(), creating, pod.PLACED_SECONDS) is None
    assert judged(node(), creating, pod.LIMIT_SECONDS) is not None


# On an API server


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer(bookmark_seconds=0.05) as server:
        yield server


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(trial, "GONE_SECONDS", 0.2)


def pods(server: ApiServer) -> list[Object]:
    shelf = server.store.shelf("pods")
    return [shelf.entries[key].obj() for key in shelf.keys]


def checked(server: ApiServer) -> Object | None:
    return next((one for one in pods(server) if one["metadata"]["name"].startswith(pod.PREFIX)), None)


async def run(server: ApiServer, config: Config, found: intree.Node | None = None) -> Verdict:
    async with client.connect(login.Access(server.url)) as api:
        return await Trial(api, config).run(found or node())


async def answer(server: ApiServer, seen: Object) -> Object:
    """As scheduler and kubelet do."""
    made = await until(server, lambda: checked(server))
    name = made["metadata"]["name"]
    patch = {"metadata": {"annotations": {names.ALLOCATION: '{"0":{"0":1}}'}}}
    server.registry.patch(embedded_objects.PODS, "default", name, embedded_objects.MERGE, patch, "")
    state = {"terminated": {"exitCode": 0, "message": json.dumps(seen)}}
    embedded_objects.set_status(server, name, phase="Succeeded", containerStatuses=[{"name": "check", "state": state}])
    return made


async def test_a_pod_is_made_judged_and_deleted(server: ApiServer) -> None:
    running = asyncio.create_task(run(server, Config(NODE, "default", image="gpushare:1")))
    made = await answer(server, {"gpus": ["GPU-0"]})
    assert (await running).why == "a pod with 1 aliyun.com/gpu-mem sees exactly GPU-0"
    assert made["spec"]["containers"][0]["image"] == "gpushare:1"
    assert pods(server) == []


async def test_image_secrets_and_owner_come_from_our_own_pod(server: ApiServer) -> None:
    own = embedded_objects.pod("validator-x")
    own["spec"]["containers"] = [{"name": "v", "image": "r.example/gpushare:7"}]
    own["spec"]["imagePullSecrets"] = [{"name": "pull"}]
    uid = embedded_objects.create(server, own)["metadata"]["uid"]
    running = asyncio.create_task(run(server, Config(NODE, "default", "validator-x")))
    made = await answer(server, {"gpus": ["GPU-0"]})
    await running
    assert made["spec"]["containers"][0]["image"] == "r.example/gpushare:7"
    assert made["spec"]["imagePullSecrets"] == [{"name": "pull"}]
    assert made["metadata"]["ownerReferences"][0]["uid"] == uid


async def test_without_an_image_it_says_how_to_name_one(server: ApiServer) -> None:
    said = await run(server, Config(NODE, "default"))
    assert (said.state, said.why) == ("failed", trial.NO_IMAGE)


async def test_what_a_killed_process_has_left_is_deleted_first(server: ApiServer) -> None:
    asks = room.asked(node())
    assert asks is not None
    for name in (NODE, "gpu-b"):
        left = pod.made(asks, pod.Given("default", name, trial.node_label(name), "img"))
        left["metadata"]["name"] = f"{pod.PREFIX}left-{name}"
        embedded_objects.create(server, left)
    found = node()
    found.spec.unschedulable = True
    assert (await run(server, Config(NODE, "default"), found)).state == "skipped"
    assert [one["metadata"]["name"] for one in pods(server)] == [f"{pod.PREFIX}left-gpu-b"]


async def test_a_trial_that_is_given_up_deletes_its_pod(server: ApiServer) -> None:
    running = asyncio.create_task(run(server, Config(NODE, "default", image="gpushare:1")))
    await until(server, lambda: checked(server))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert pods(server) == []


async def test_an_api_server_that_is_away_is_said() -> None:
    async with client.connect(login.Access("http://127.0.0.1:1")) as api:
        said = await Trial(api, Config(NODE, "default")).run(node())
    assert said.state == "failed"
    assert said.why.startswith("no pod can be tried: ")


async def test_a_runtime_class_that_is_not_there_is_said_with_its_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(self: Trial, found: intree.Node) -> Verdict:
        raise ApiError(403, "Forbidden", 'pod rejected: RuntimeClass "nvidia" not found')

    monkeypatch.setattr(Trial, "_run", refuse)
    async with client.connect(login.Access("http://127.0.0.1:1")) as api:
        said = await Trial(api, Config(NODE, "default")).run(node())
    assert 'RuntimeClass "nvidia" not found' in said.why
    assert said.way == trial.SEE_CLASS


# When it is tried


class World:
    def __init__(self) -> None:
        self.node, self.now, self.runs, self.woken = node(), 0.0, 0, 0
        self.says, self.go = verdict.passed("fine"), asyncio.Event()
        self.go.set()
        self.check = Workload(self.run, lambda: (self.node, ""), self.wake, clock=lambda: self.now)

    def wake(self) -> None:
        self.woken += 1

    async def run(self, found: intree.Node) -> Verdict:
        self.runs += 1
        await self.go.wait()
        return self.says

    async def settled(self) -> Verdict:
        woken = self.woken
        said = await self.check.verdict()
        if said.why == check.UNDER_WAY:
            await eventually(lambda: self.woken > woken)
            said = await self.check.verdict()
        return said


async def test_it_is_tried_once_and_not_again_while_nothing_changes() -> None:
    world = World()
    assert (await world.settled()).state == "passed"
    world.now = 1e6
    assert (await world.settled()).state == "passed"
    assert world.runs == 1


async def test_it_is_tried_again_when_gpus_change_or_the_node_part_was_away() -> None:
    world = World()
    await world.settled()
    world.node = node(gpus=GPUS[:1])
    await world.settled()
    assert world.runs == 2
    world.check.blocked()
    await world.settled()
    assert world.runs == 3


async def test_a_failure_is_tried_again_later_and_stays_said_meanwhile() -> None:
    world = World()
    world.says = verdict.failed("no", "x")
    assert (await world.settled()).state == "failed"
    assert (await world.settled()).state == "failed"
    assert world.runs == 1
    world.now, world.says = 10.0, verdict.passed("fine")
    assert (await world.check.verdict()).state == "failed"
    await eventually(lambda: world.woken == 2)
    assert (await world.check.verdict()).state == "passed"


async def test_what_was_skipped_is_looked_at_again_after_a_minute() -> None:
    world = World()
    world.says = verdict.skipped("full")
    await world.settled()
    world.now = check.LOOK_SECONDS - 1
    await world.settled()
    assert world.runs == 1
    world.now = check.LOOK_SECONDS
    await world.check.verdict()
    await eventually(lambda: world.runs == 2)


async def test_the_end_gives_up_what_is_under_way() -> None:
    world = World()
    world.go.clear()
    await world.check.verdict()
    await eventually(lambda: world.runs == 1)
    await world.check.end()
    assert world.woken == 0
