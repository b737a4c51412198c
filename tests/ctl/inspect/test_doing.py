"""What GPUs do, in `inspect`: what the golden files of the world `measured` do not show."""

import io
import json
from typing import Any

import pytest

from gpushare.ctl.inspect import command
from gpushare.ctl.inspect.command import Options
from gpushare.ctl.inspect.watch import Clock
from gpushare.ctl.screen import Screen
from gpushare.obs.errors import CLUSTER_NOT_ASKED, UserError
from gpushare.view import vitals
from gpushare.view.source import Forbidden
from tests.ctl import worlds
from tests.ctl.worlds import NOW, Cluster, container, gpunode, node, pod

WIDE = Options(output="wide")
DETAILS = Options(details=True, output="wide")


class Noon(Clock):
    def now(self) -> float:
        return NOW.timestamp()


def run(cluster: Cluster, options: Options, *, terminal: bool = False) -> str:
    out, err = io.StringIO(), io.StringIO()
    screen = Screen(out, err, width=120, height=40, moves=True) if terminal else Screen(out, err)
    assert command.run(options, cluster, screen, Noon()) == 0
    assert err.getvalue() == ""
    return out.getvalue()


def small(*gpunodes: Any, unit: str = "MiB", total: int = 16276) -> Cluster:
    """One node, one GPU, one pod."""
    asks = total // 2
    return Cluster(([node("a", total, unit=unit)], [pod("p", asks, on="a", at=[[0]])]), list(gpunodes))


@pytest.mark.parametrize(
    ("options", "terminal", "asks"),
    [
        (Options(), False, False),
        (Options(), True, False),
        (Options(details=True), False, False),
        (Options(details=True), True, True),
        (WIDE, False, True),
        (Options(output="json"), False, True),
        (Options(output="yaml"), False, True),
    ],
)
def test_they_are_asked_for_only_where_they_are_shown(options: Options, terminal: bool, asks: bool) -> None:
    cluster = worlds.cluster("measured")
    run(cluster, options, terminal=terminal)
    assert (vitals.ALL in cluster.asked) is asks


class NotAllowed(Cluster):
    def get(self, path: str) -> bytes:
        if path == vitals.ALL:
            raise Forbidden("not allowed", "why", "way", CLUSTER_NOT_ASKED)
        return super().get(path)


class TooLate(Cluster):
    def get(self, path: str) -> bytes:
        if path == vitals.ALL:
            raise UserError("no answer", "why", "way", CLUSTER_NOT_ASKED)
        return super().get(path)


@pytest.mark.parametrize("kind", [Cluster, NotAllowed, TooLate])
@pytest.mark.parametrize("options", [WIDE, DETAILS, Options(output="json")])
def test_without_them_everything_is_as_before(kind: type[Cluster], options: Options) -> None:
    shown = run(kind(worlds.measured()), options)
    assert "USED" not in shown
    assert "usedMiB" not in shown
    assert "unknown" not in shown
    assert shown == run(Cluster(worlds.measured(), []), options)


@pytest.mark.parametrize("options", [WIDE, DETAILS, Options(output="json")])
def test_one_that_is_malformed_is_as_if_it_were_not_there(options: Options) -> None:
    bad = gpunode("a", {"usedMiB": "much"})
    assert run(small(bad), options) == run(small(), options)


def test_a_gpunode_of_a_node_that_is_not_shown_adds_no_column() -> None:
    assert "USED" not in run(small(gpunode("b", {"usedMiB": 1})), WIDE)


def test_a_gpu_that_idles_is_0_and_not_unknown() -> None:
    row = run(small(gpunode("a", {"usedMiB": 0, "utilization": 0})), WIDE).splitlines()[1]
    assert row.split()[-2:] == ["0", "0%"]


def test_where_memory_is_counted_in_gib_so_is_what_is_used() -> None:
    using = container("p", 7 * 1024, 7 * 1024 + 512)
    cluster = small(gpunode("a", {"usedMiB": 3584, "utilization": 7, "containers": [using]}), unit="GiB", total=15)
    assert run(cluster, WIDE).splitlines()[1].split()[-2:] == ["3.5", "7%"]
    assert "7.5, over by 0.5" in run(cluster, DETAILS)


def test_a_pod_of_the_same_name_with_another_uid_is_another_pod() -> None:
    using = container("p", 8138, 9000, uid="one-before")
    cluster = small(gpunode("a", {"usedMiB": 9000, "containers": [using]}))
    shown = run(cluster, DETAILS)
    assert "over by" not in shown
    assert "more than it asked" not in shown
    assert "overMiB" not in run(cluster, Options(output="json"))


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"age": 95}, "last sampled 95s ago"),
        ({"age": 7300}, "last sampled 2h ago"),
        ({"age": -61}, "they were sampled in the future: the clock of the node or the one here is wrong"),
        ({"sampledAt": ""}, "they were never sampled"),
        ({"sampledAt": "soon"}, "they were never sampled"),
    ],
)
def test_old_figures_are_told_as_old(status: dict[str, Any], why: str) -> None:
    shown = run(small(gpunode("a", {"usedMiB": 9000, "utilization": 5}, **status)), WIDE)
    assert shown.splitlines()[1].split()[-2:] == ["-", "-"]
    assert f"a: what its GPUs do is unknown: {why}.\n" in shown


def test_a_driver_that_does_not_answer_is_told_before_its_last_figures_are_old() -> None:
    silent = {"type": "Sampled", "status": "False", "message": "the driver has not answered for 15 s"}
    shown = run(small(gpunode("a", {}, age=15, conditions=[silent], containersUnknown="no pids")), DETAILS)
    assert "a: what its GPUs do is unknown: last sampled 15s ago (the driver has not answered for 15 s).\n" in shown
    assert "no pids" not in shown, "one reason is enough"


def test_what_a_node_writes_cannot_move_the_cursor() -> None:
    evil = {"containersUnknown": "\x1b[2J", "conditions": [{"type": "Sampled", "status": "False", "message": "\x1b"}]}
    for age in (9, 900):
        assert "\x1b" not in run(small(gpunode("a", {"usedMiB": 1}, age=age, **evil)), DETAILS)


def test_programs_get_what_is_fresh_and_nothing_else() -> None:
    using = {"usedMiB": 9000, "utilization": 5, "containers": [container("p", 8138, 9000)]}
    for age, keys in ((9, {"usedMiB", "utilization", "sampledAt"}), (900, set())):
        (device,) = json.loads(run(small(gpunode("a", using, age=age)), Options(output="json")))["nodes"][0]["devs"]
        assert device.keys() - {"id", "totalGPU", "usedGPU", "healthy", "pods"} == keys
        assert ("overMiB" in device["pods"][0]) is bool(keys)
