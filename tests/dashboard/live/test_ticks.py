"""Browsers that add messages up see the same as those that read everything; nobody is sent more than needed."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpushare.core.explain.inspected import inspected
from gpushare.core.facts.vitals import is_fresh
from gpushare.dashboard.live.history import History
from gpushare.dashboard.live.ticks import Ticks
from tests.dashboard.live import world
from tests.dashboard.live.browser import Browser, decoded, event, shown
from tests.dashboard.live.events import EVENTS, Event
from tests.dashboard.live.world import NOW, Clock, World

SHARED = world.node(8000, 8000)


class Second(World):
    """A cluster, and its ticks."""

    def __init__(self) -> None:
        super().__init__()
        self.ticks = Ticks(self.live, History(), epoch="8f3a", now=self.clock, clock=self.clock, sleep=self.clock.sleep)
        self.frames: list[bytes] = []
        self.ticks.subscribe(self.frames.append)

    def tick(self, seconds: float = 1.0) -> tuple[str, str, dict[str, Any]]:
        """The message of the next second."""
        self.clock.time += seconds
        self.frames.clear()
        self.ticks.tick()
        return event(self.frames[-1]) if self.frames else ("", "", {})

    def settle(self) -> None:
        self.tick(3.0)
        self.tick()

    def column(self, name: str, of: str = "gpus") -> list[Any]:
        return list(decoded(self.ticks.snapshot_body()[1])[of][name])


@given(st.lists(st.tuples(EVENTS, st.booleans()), max_size=25))
@settings(max_examples=200)
def test_messages_add_up_to_the_snapshot(events: list[tuple[Event, bool]]) -> None:
    api = Second()
    browser = Browser(api.ticks)
    for happens, tick in events:
        happens(api)
        if tick:
            api.tick()
    api.tick(3.0)
    assert browser.sees() == shown(decoded(api.ticks.snapshot_body()[1]))


@given(st.lists(EVENTS, max_size=25))
@settings(max_examples=200)
def test_the_columns_are_what_inspect_says(events: list[Event]) -> None:
    api = Second()
    for happens in events:
        happens(api)
        api.tick(0.0)
    columns, cluster = decoded(api.ticks.snapshot_body()[1]), api.snapshot()
    counts = iter(columns["nodes"]["gpus"])
    at = 0
    for name, unit in zip(columns["nodes"]["name"], columns["nodes"]["unit"], strict=True):
        count = next(counts)
        rows = [{key: column[row] for key, column in columns["gpus"].items()} for row in range(at, at + count)]
        at += count
        state = cluster.ledger.node(name)
        if state is None or state.facts is None:
            assert not rows
            continue
        status = cluster.doing.get(name)
        said: Any = inspected(state, status if status is not None and is_fresh(status, NOW) else None)
        mib = 1024 if unit == "GiB" else 1
        for row, dev in zip(rows, said["devs"], strict=True):
            sold = state.facts.sold and not list(state.holdings())
            assert row["granted"] == (-1 if sold else dev["usedGPU"] * mib)
            assert (row["index"], row["total"]) == (dev["id"], dev["totalGPU"] * mib)
            assert (row["healthy"], row["shares"]) == (int(dev["healthy"]), len(dev["pods"]))
            figures = [dev.get(key, -1) for key in ("usedMiB", "utilization", "temperature", "powerWatts")]
            assert [row[key] for key in ("used", "util", "temp", "power")] == figures


def test_a_message_has_only_what_changed() -> None:
    api = Second()
    api.put_node(SHARED)
    api.put_gpunode(world.gpunode({"usedMiB": 70, "utilization": 9}, {"usedMiB": 5}))
    api.settle()
    api.put_gpunode(world.gpunode({"usedMiB": 60, "utilization": 9}, {"usedMiB": 5}, at=NOW + 2))
    tag, name, content = api.tick()
    assert (tag, name) == ("8f3a.3", "delta")
    assert content["g"] == {"id": [0], "used": [-10]}
    assert content["n"] == {"0": {"age": 3}}
    assert "s" not in content
    assert "waiting" not in content


def test_a_second_without_changes_says_only_how_old_everything_is() -> None:
    api = Second()
    api.put_node(SHARED)
    api.settle()
    assert set(api.tick()[2]) == {"t", "ages"}


def test_a_share_is_numbers_and_no_name_is_sent() -> None:
    api = Second()
    api.put_node(SHARED)
    api.settle()
    api.put_pod(world.pod(500, name="secret", namespace="hidden", on="n", gpus=["GPU-n-1"]))
    _, _, content = api.tick()
    assert content["s"] == {"1": [[api.live.pod_number("uid-secret"), 0, 500]]}
    assert content["g"] == {"id": [1], "granted": [500], "free": [-500]}
    everything = json.dumps([content, api.ticks.snapshot()])
    assert "secret" not in everything
    assert "hidden" not in everything


def test_figures_that_become_too_old_become_unknown_by_themselves() -> None:
    api = Second()
    api.put_node(SHARED)
    api.put_gpunode(world.gpunode({"usedMiB": 70}, {}))
    api.settle()
    assert api.column("used") == [70, -1]
    api.tick(200.0)
    assert (api.column("used"), api.column("over")) == ([-1, -1], [-1, -1])
    assert api.column("age", "nodes") == [204]  # how old they are stays known


def test_figures_of_the_future_count_once_it_has_come() -> None:
    api = Second()
    api.put_node(SHARED)
    api.put_gpunode(world.gpunode({"usedMiB": 70}, {}, at=NOW + 100))
    api.settle()
    assert api.column("used") == [-1, -1]
    api.tick(60.0)
    assert api.column("used") == [70, -1]


def test_over_use_is_what_all_containers_use_above_what_each_was_given() -> None:
    api = Second()
    api.put_node(SHARED)
    there = [world.container("uid-p", 100, 130), world.container("uid-q", 100, 20), world.container("uid-r", 50, 60)]
    api.put_gpunode(world.gpunode({"usedMiB": 210, "containers": there}, {}))
    api.settle()
    assert api.column("over") == [40, 0]


@pytest.mark.parametrize(
    ("node", "state"),
    [
        (world.node(8), "ready"),
        (world.node(8, cordoned=True), "cordoned"),
        (world.node(8, state="draining"), "draining"),
        (world.node(8, nvidia=8), "blocked"),
        (world.node(8, pin="nvidia"), "selling"),
    ],
)
def test_a_node_says_whether_pods_may_go_there(node: bytes, state: str) -> None:
    api = Second()
    api.put_node(node)
    api.settle()
    assert api.column("state", "nodes") == [state]


def test_a_node_that_sells_by_count_says_what_it_sells_and_grants_no_memory() -> None:
    api = Second()
    api.put_node(world.node(8000, 8000, pin="nvidia"))
    api.put_pod(world.pod(name="p", nvidia=1, direct=False, on="n", phase="Running"))
    api.settle()
    assert api.column("sold", "nodes") == [[["nvidia.com/gpu", 2, 1]]]
    assert api.column("granted") == api.column("free") == [-1, -1]
    api.end_pod("uid-p")
    assert api.tick()[2]["n"] == {"0": {"sold": [["nvidia.com/gpu", 2, 0]]}}


def test_a_pod_without_a_known_gpu_is_counted_and_under_no_gpu() -> None:
    api = Second()
    api.put_node(world.node(8000, 8000, pin="plugin"))
    api.settle()
    api.put_pod(world.pod(500, name="p", on="n", direct=False))
    _, _, content = api.tick()
    assert content["unplaced"] == 1
    assert "s" not in content


def test_nodes_that_come_or_go_are_told_by_a_reset() -> None:
    api = Second()
    assert api.tick()[1] == "delta"
    api.put_node(SHARED)
    assert api.tick()[1] == "reset"
    assert api.tick()[1] == "delta"


def test_resets_are_at_least_two_seconds_apart_and_nothing_else_is_said_meanwhile() -> None:
    api = Second()
    said = []
    for number in range(5):
        api.put_node(world.node(8, name=f"n{number}"))
        said.append(api.tick()[1])
    assert said == ["reset", "", "reset", "", "reset"]


def test_who_was_away_gets_what_was_missed() -> None:
    api = Second()
    api.put_node(SHARED)
    api.settle()
    away = Browser(api.ticks)
    away.leave()
    for used in (10, 20, 30):
        api.put_gpunode(world.gpunode({"usedMiB": used}, {}, at=NOW + used))
        api.tick()
    missed = api.ticks.since("8f3a", int(away.tag.split(".")[1]))
    assert missed is not None
    for frame in missed:
        away.take(frame)
    assert away.sees() == shown(decoded(api.ticks.snapshot_body()[1]))
    assert api.ticks.since("8f3a", api.ticks.seq) == []


def test_who_was_away_too_long_or_before_a_reset_or_at_another_process_begins_anew() -> None:
    api = Second()
    api.tick()
    api.put_node(SHARED)
    api.settle()
    assert api.ticks.since("8f3a", 1) is None  # a reset came since
    assert api.ticks.since("8f3a", 2) is not None
    assert api.ticks.since("other", 2) is None
    assert api.ticks.since("8f3a", 999) is None
    for _ in range(120):
        api.tick()
    assert api.ticks.since("8f3a", 3) is not None
    assert api.ticks.since("8f3a", 2) is None
    assert len(api.ticks.since("8f3a", 3) or ()) == 120


def test_a_snapshot_is_compressed_once_for_all_who_ask_within_a_second() -> None:
    api = Second()
    api.put_node(SHARED)
    api.settle()
    tag, body = api.ticks.snapshot_body()
    assert (tag, api.ticks.snapshot_body()[1] is body) == (f"8f3a.{api.ticks.seq}", True)
    api.tick()
    assert api.ticks.snapshot_body()[0] != tag


def test_one_message_is_encoded_once_for_all() -> None:
    api = Second()
    got: list[bytes] = []
    ends = [api.ticks.subscribe(got.append) for _ in range(3)]
    api.tick()
    assert len(got) == 3
    assert got[0] is got[1] is got[2]
    for end in ends:
        end()
    api.tick()
    assert len(got) == 3


@pytest.mark.parametrize("figures", [{"usedMiB": -500}, {"usedMiB": 1 << 60}, {"grantedMiB": -5}, {"smPercent": -1}])
def test_a_container_with_a_figure_that_cannot_be_makes_its_node_unknown_and_ends_nothing(
    figures: dict[str, int],
) -> None:
    api = Second()
    api.put_node(SHARED)
    api.put_pod(world.pod(1000, gpus=("GPU-n-0",), on="n", name="p"))
    api.put_gpunode(world.gpunode({"usedMiB": 5, "containers": [world.container("uid-p", 1000, 900) | figures]}))
    api.settle()
    assert api.column("used") == [-1, -1]
    assert api.column("granted") == [1000, 0]


def test_a_client_that_leaves_while_it_is_told_something_harms_no_other() -> None:
    api = Second()
    got: list[bytes] = []
    end = api.ticks.subscribe(lambda _: end())
    api.ticks.subscribe(got.append)
    api.tick()
    api.tick()
    assert len(got) == 2


async def test_it_ticks_once_a_second_and_makes_up_for_nothing() -> None:
    api, clock = Second(), Clock()
    slept: list[float] = []

    class Enough(Exception):
        pass

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.time += seconds if len(slept) != 2 else 500.0  # the machine was asleep
        if len(slept) == 4:
            raise Enough

    ticks = Ticks(api.live, History(), epoch="e", now=clock, clock=clock, sleep=sleep)
    with pytest.raises(Enough):
        await ticks.run()
    assert slept == [1.0, 1.0, 1.0, 1.0]
    assert ticks.seq == 4
