"""The node part and MPS: what they say of themselves, and what kubelet offers."""

import asyncio

import msgspec
import pytest
from aiohttp import web

from gpushare.core.annotations import node_gpus
from gpushare.core.facts import names, objects
from gpushare.core.facts.model import Gpu, Pin, Sold
from gpushare.core.facts.mps import status
from gpushare.obs import http
from gpushare.validate import readiness
from gpushare.validate.rules import mps, plugin
from gpushare.validate.rules.plugin import Answered

OK = Answered(200, "ok")
GPUS = (Gpu(0, "GPU-0", 16276, True, ""), Gpu(1, "GPU-1", 16276, False, "Xid 79"))


def node(
    gpus: tuple[Gpu, ...] = GPUS, pin: Pin = Pin.DIRECT, *, labels: dict[str, str] | None = None, **words: object
) -> objects.Node:
    """`words`: more of what its annotation says. It offers what healthy GPUs have."""
    written = node_gpus.write("MiB", pin, gpus, **words)  # type: ignore[arg-type]
    healthy = [gpu for gpu in gpus if gpu.healthy]
    offer = {names.GPU_MEM: str(sum(gpu.total for gpu in healthy))}
    if pin is Pin.NVIDIA:
        offer = {names.NVIDIA_GPU: str(len(healthy) * 2)}
    return objects.Node(
        objects.Metadata(name="gpu-a", annotations={names.NODE_GPUS: written}, labels=labels),
        objects.NodeStatus(capacity=dict(offer), allocatable=dict(offer)),
    )


def test_a_node_part_that_is_ready_passes_and_unhealthy_gpus_are_named() -> None:
    assert plugin.judged(OK, node(), "") == ("passed", "aliyun.com/gpu-mem: 16276; GPU 1 GPU-1 unhealthy: Xid 79", "")


def test_replicas_count_as_kubelet_allocates_them() -> None:
    sold = (Sold(names.NVIDIA_GPU, 2, "time-slicing"),)
    assert plugin.judged(OK, node(GPUS[:1], Pin.NVIDIA, sold=sold), "").why == "nvidia.com/gpu: 2"


def test_a_node_whose_gpus_are_all_unhealthy_fails_although_its_capacity_is_there() -> None:
    sick = tuple(msgspec.structs.replace(gpu, healthy=False, why="Xid 79") for gpu in GPUS)
    found = node(sick)
    found.status.capacity = {names.GPU_MEM: "32552"}
    said = plugin.judged(OK, found, "")
    assert (said.state, said.why) == (
        "failed", "no GPU is healthy: GPU 0 GPU-0 unhealthy: Xid 79; GPU 1 GPU-1 unhealthy: Xid 79",
    )  # fmt: skip


def test_what_kubelet_does_not_offer_fails_although_the_capacity_is_there() -> None:
    found = node()
    found.status.allocatable = {names.GPU_MEM: "0"}
    said = plugin.judged(OK, found, "")
    assert said.state == "failed"
    assert said.why.startswith("allocatable aliyun.com/gpu-mem is 0")


def test_the_node_parts_own_reason_is_told() -> None:
    said = plugin.judged(Answered(503, "config a: unknown key:\n b"), node(), "")
    assert (said.state, said.why) == ("failed", "the node part is not ready: config a: unknown key: b")


def test_without_a_node_part_the_check_fails_unless_another_plugin_sells_gpus() -> None:
    silent = Answered(0, "Connection refused")
    assert plugin.judged(silent, node(), "").why == "the node part does not answer: Connection refused"
    others = objects.Node(status=objects.NodeStatus(allocatable={"nvidia.com/gpu": "4", "cpu": "8"}))
    assert plugin.judged(silent, others, "") == ("passed", "nvidia.com/gpu: 4, sold by another device plugin", "")


def test_a_node_without_an_object_fails_with_the_reason() -> None:
    assert "403 Forbidden" in plugin.judged(OK, None, "403 Forbidden").why
    assert plugin.NO_NODE in plugin.judged(OK, None, "").why
    assert plugin.judged(OK, None, plugin.NOT_ASKED).state == "waiting"


def test_a_node_where_no_node_part_is_wanted_is_skipped() -> None:
    labelled = node(labels={"nvidia.com/gpu.deploy.device-plugin": "false"})
    assert plugin.judged(OK, labelled, "").state == "skipped"


def test_a_node_that_says_nothing_of_its_gpus_fails() -> None:
    assert plugin.judged(OK, objects.Node(), "").why == plugin.SAYS_NOTHING


@pytest.mark.parametrize(("problem", "code"), [("", 200), ("no driver", 503)])
async def test_the_node_part_is_asked_over_http(problem: str, code: int) -> None:
    listening = await http.serve_probes("127.0.0.1", 0, lambda: "", lambda: problem, lambda: (b"", "text/plain"))
    try:
        url = f"http://127.0.0.1:{listening.addresses[0][1]}/readyz"
        assert await readiness.ask(url) == (code, problem or "ok")
    finally:
        await listening.cleanup()
    assert (await readiness.ask(url)).status == 0
    assert "refused" in (await readiness.ask(url)).text.lower()


async def test_a_node_part_that_hangs_is_given_up() -> None:
    async def hang(_: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    app = web.Application()
    app.add_routes([web.get("/readyz", hang)])
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await http.listen(runner, "127.0.0.1", [0])
    try:
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/readyz"
        assert (await readiness.ask(url, 0.1)).text == "no answer within 0.1 s"
    finally:
        await runner.cleanup()


# MPS


def report(state: str = "up", *, replicas: int = 1, why: str = "") -> bytes:
    return status.write(status.Status(1, state, why, 0.0, 1, 1000.0, replicas))  # type: ignore[arg-type]


def judged(found: objects.Node, content: bytes | None) -> tuple[str, str]:
    said = mps.judged(node_gpus.read(found, frozenset()), content, 1001.0)
    return said.state, said.why


def test_mps_is_skipped_where_none_is_sold() -> None:
    assert judged(node(), None) == ("skipped", mps.NOT_SOLD)


def test_mps_shares_need_the_daemon() -> None:
    slots = node(slots=4, only_mps=True)
    assert judged(slots, report())[0] == "passed"
    assert judged(slots, report("down", why="no nvidia-cuda-mps-control")) == ("failed", "no nvidia-cuda-mps-control")
    assert judged(slots, None) == ("failed", status.NOT_THERE)


def test_a_daemon_that_somebody_else_keeps_is_not_judged() -> None:
    assert judged(node(slots=4), None) == ("skipped", mps.NOT_OURS)


def test_mps_replicas_need_a_daemon_that_divides_by_them() -> None:
    replicas = node(GPUS[:1], Pin.NVIDIA, sold=(Sold(names.NVIDIA_GPU, 4, "mps"),))
    assert judged(replicas, report(replicas=4))[0] == "passed"
    assert judged(replicas, report(replicas=1)) == ("failed", "the daemon does not divide each GPU by 4 yet")
    assert judged(replicas, None)[0] == "failed"
