"""What `gpushare inspect` promises beyond the tables that the golden files show."""

import io
import re
from pathlib import Path

import pytest

from gpushare.core.facts import names
from gpushare.ctl.inspect import command
from gpushare.ctl.inspect.command import Options
from gpushare.ctl.inspect.watch import Clock
from gpushare.ctl.screen import Screen
from gpushare.obs.errors import UserError
from gpushare.view import wording
from gpushare.view.source import Forbidden
from tests.ctl import worlds
from tests.ctl.worlds import NOW, Cluster, World, node, pod

DOCUMENTED = Path(__file__).parent / "documented"
PAINT = re.compile(r"\x1b\[[0-9;]*m")


class Noon(Clock):
    def now(self) -> float:
        return NOW.timestamp()


def run(world: World, options: Options, *, terminal: bool = False) -> tuple[str, str]:
    """What goes to stdout and to stderr; the exit code is 0."""
    out, err = io.StringIO(), io.StringIO()
    screen = Screen(out, err, width=120, height=40, color=True, moves=True) if terminal else Screen(out, err)
    assert command.run(options, Cluster(world), screen, Noon()) == 0
    return out.getvalue(), err.getvalue()


def test_a_terminal_shows_what_is_documented() -> None:
    out, err = run(worlds.documented(), Options(), terminal=True)
    assert PAINT.sub("", out) == (DOCUMENTED / "terminal.txt").read_text("utf-8")
    assert err == ""


def test_the_table_never_moves_whatever_is_added_to_it() -> None:
    """With bars, and with `-o wide`, Aliyun's columns stand where they stand when piped."""
    piped = run(worlds.documented(), Options())[0].splitlines()
    for options, terminal in ((Options(), True), (Options(output="wide"), False), (Options(output="wide"), True)):
        shown = PAINT.sub("", run(worlds.documented(), options, terminal=terminal)[0]).splitlines()
        for plain, line in zip(piped, shown, strict=False):
            cells = [(found.start(), found[0]) for found in re.finditer(r"\S+", plain)]
            assert all(line[at:].startswith(text) for at, text in cells)


def test_only_the_named_nodes_are_shown_and_summed_up() -> None:
    out, _ = run(worlds.documented(), Options(nodes=("gpu-b", "gpu-a")))
    rows = out.splitlines()
    assert [row.split()[0] for row in rows[1:3]] == ["gpu-a", "gpu-b"]
    assert rows[-1] == "66768/67998 (98%)  "
    assert "GPU2" not in out


def test_an_unknown_node_is_bad_input_and_prints_nothing() -> None:
    out = io.StringIO()
    with pytest.raises(UserError) as caught:
        command.run(Options(nodes=("gpu-x",)), Cluster(worlds.documented()), Screen(out, io.StringIO()), Noon())
    assert caught.value.code == 2
    assert caught.value.what == 'no node "gpu-x"'
    assert caught.value.way == "one of gpu-a, gpu-b, gpu-c, gpu-d"
    assert out.getvalue() == ""


def test_of_many_nodes_the_closest_names_are_offered() -> None:
    with pytest.raises(UserError) as caught:
        run((worlds.thousand()[0], []), Options(nodes=("gpu-00421",)))
    assert caught.value.way.startswith("one of gpu-0421, ")
    assert caught.value.way.count(",") == 2


def test_names_that_are_like_none_still_say_what_there_is() -> None:
    with pytest.raises(UserError) as caught:
        run((worlds.thousand()[0], []), Options(nodes=("x",)))
    assert caught.value.way.endswith("gpu-0009 and 990 more")


def test_in_a_cluster_without_nodes_no_name_is_offered() -> None:
    with pytest.raises(UserError) as caught:
        run(([], []), Options(nodes=("a",)))
    assert (caught.value.why, caught.value.way) == ("0 nodes in this cluster, none of that name", "kubectl get nodes")


def test_a_node_without_gpu_memory_may_be_named() -> None:
    out, err = run(worlds.aliyun(), Options(nodes=("cpu-node", "gpu-node-2")))
    assert "cpu-node" not in out
    assert "25/60 (41%)" in out
    assert err == f"note: cpu-node offers no {names.GPU_MEM}.\n"


def test_who_may_not_read_nodes_sees_no_half_table() -> None:
    out, err = io.StringIO(), io.StringIO()
    cluster = Cluster(worlds.documented())
    cluster.failing = Forbidden("not allowed: list nodes", "why", "way", 3)
    with pytest.raises(Forbidden):
        command.run(Options(), cluster, Screen(out, err), Noon())
    assert (out.getvalue(), err.getvalue()) == ("", "")


def test_a_body_that_is_no_list_is_an_error_of_the_cluster() -> None:
    class Odd:
        def get(self, path: str) -> bytes:
            return b"<html>"

    with pytest.raises(UserError) as caught:
        command.run(Options(), Odd(), Screen(io.StringIO(), io.StringIO()), Noon())
    assert caught.value.code == 3
    assert caught.value.what == "the API server's answer cannot be read: GET /api/v1/nodes"


def test_the_cluster_is_asked_three_times_and_no_more() -> None:
    cluster = Cluster(worlds.documented())
    command.run(Options(), cluster, Screen(io.StringIO(), io.StringIO()), Noon())
    assert cluster.asked == ["/api/v1/nodes", "/api/v1/pods", "/api/v1/namespaces/kube-system/configmaps"]


def test_a_gpu_that_a_configmap_lists_is_unhealthy_whatever_its_node_says() -> None:
    cluster = Cluster(([node("gpu-a", 8000, 8000)], []))
    cluster.maps = [{"metadata": {"name": "unhealthy-gpu-gpu-a"}, "data": {names.UNHEALTHY_KEY: "1"}}]
    out = io.StringIO()
    command.run(Options(), cluster, Screen(out, io.StringIO(), width=120), Noon())
    assert "gpu-a GPU 1 is unhealthy: its 8000 free MiB are not given out." in out.getvalue()


def test_whoever_may_not_read_configmaps_sees_what_the_nodes_say() -> None:
    class Restricted(Cluster):
        def get(self, path: str) -> bytes:
            if path.endswith("configmaps"):
                raise Forbidden("not allowed", "403", "ask", 3)
            return super().get(path)

    out = io.StringIO()
    command.run(Options(), Restricted(([node("gpu-a", 8000)], [])), Screen(out, io.StringIO()), Noon())
    assert "gpu-a" in out.getvalue()


def test_a_thousand_nodes_are_a_thousand_rows() -> None:
    out, _ = run(worlds.thousand(), Options())
    rows = out.splitlines()
    assert len(rows) == 1 + 1000 + 3
    assert rows[1].split() == ["gpu-0000", "10.0.0.0", "10032/16276", "0/16276", "0/16276", "0/16276", "10032/65104"]
    assert [row.split()[0] for row in rows[1:-3]] == [f"gpu-{i:04}" for i in range(1000)]
    assert rows[-1] == "10029994/65104000 (15%)  "


def test_the_same_state_is_the_same_bytes_in_whatever_order_it_comes() -> None:
    nodes, pods = worlds.documented()
    for options in (Options(), Options(details=True), Options(output="wide"), Options(output="json")):
        assert run((nodes, pods), options) == run((nodes[::-1], pods[::-1]), options)


def test_a_node_whose_plugin_is_down_stays_in_the_table() -> None:
    down = node("a", 15, 15, aliyun=True, allocatable={names.GPU_MEM: "0"})
    out, _ = run(([down], [pod("p", 3, on="a", at=1)]), Options())
    assert out.splitlines()[1].split() == ["a", "10.0.0.11", "0/15", "3/15", "3/30"]


@pytest.mark.parametrize(
    ("each", "unit"), [(15, "GiB"), (141, "GiB"), (1024, "GiB"), (1025, "MiB"), (16276, "MiB"), (143771, "MiB")]
)
def test_the_unit_of_an_aliyun_node_is_told_by_the_size_of_its_gpus(each: int, unit: str) -> None:
    out, _ = run(([node("a", each, aliyun=True)], []), Options())
    assert out.splitlines()[0].endswith(f"GPU Memory({unit})")


def test_a_node_of_ours_says_its_unit_itself() -> None:
    out, _ = run(([node("a", 900, unit="MiB")], []), Options())
    assert out.splitlines()[0].endswith("GPU Memory(MiB)")


def test_a_node_that_contradicts_its_annotation_is_taken_for_one_of_aliyun() -> None:
    """Aliyun's plugin came back, and the annotation is an old one."""
    stale = node("a", 16276, 16276, capacity={names.GPU_MEM: "30", names.GPU_COUNT: "2"})
    out, _ = run(([stale], [pod("p", 5, on="a", at=0)]), Options())
    assert out.splitlines()[:2] == [
        "NAME  IPADDRESS  GPU0(Allocated/Total)  GPU1(Allocated/Total)  GPU Memory(GiB)",
        "a     10.0.0.11  5/15                   0/15                   5/30",
    ]


def test_gpus_of_different_sizes_have_their_own_totals() -> None:
    out, _ = run(([node("a", 24268, 11178)], []), Options())
    assert out.splitlines()[1].split()[2:] == ["0/24268", "0/11178", "0/35446"]


def test_a_node_with_odd_indices_has_a_column_for_each_and_no_more() -> None:
    out, _ = run(([node("a", 100, 200, indices=[7, 999_999_999]), node("b", 300)], []), Options())
    assert out.splitlines()[0].split()[2:5] == [f"GPU{i}(Allocated/Total)" for i in (0, 7, 999_999_999)]
    assert out.splitlines()[1].split()[2:] == ["0/0", "0/100", "0/200", "0/300"]


def test_finished_pods_count_nothing_and_ending_ones_do() -> None:
    pods = [
        pod("done", 4000, on="a", at=[[0]], phase="Succeeded"),
        pod("ends", 3000, on="a", at=[[0]], terminating=True),
    ]
    out, _ = run(([node("a", 16276)], pods), Options())
    assert out.splitlines()[1].split()[2] == "3000/16276"


def test_an_index_past_the_last_gpu_is_counted_beside_the_gpus() -> None:
    out, _ = run(([node("a", 15, aliyun=True)], [pod("p", 4, on="a", at=3)]), Options())
    assert "PENDING(Allocated)" in out
    assert out.splitlines()[1].split() == ["a", "10.0.0.11", "0/15", "4", "4/15"]


def test_what_is_said_below_a_table_has_an_end_unless_all_is_asked_for() -> None:
    world = [node("a", 16276, unhealthy=[0])], [pod(f"stray-{i:02}", 10, on="a") for i in range(13)]
    short, _ = run(world, Options(), terminal=True)
    assert "and 3 more: -o wide" in short
    assert short.count("PENDING: bound to") == 10
    full, _ = run(world, Options(output="wide"))
    assert full.count("PENDING: bound to") == 13
    assert "more: -o wide" not in full


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-5, "0s"),
        (0.9, "0s"),
        (119, "119s"),
        (120, "2m"),
        (7199, "119m"),
        (7200, "2h"),
        (172_799, "47h"),
        (172_800, "2d"),
    ],
)
def test_ages_are_short(seconds: float, said: str) -> None:
    assert wording.age("2026-11-15T12:30:05Z", NOW.timestamp() + seconds) == said


@pytest.mark.parametrize("created", ["", "yesterday", "2026-13-45T00:00:00Z"])
def test_an_age_that_nobody_knows_is_a_dash(created: str) -> None:
    assert wording.age(created, NOW.timestamp()) == "-"


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 pods"), (1, "1 pod"), (2, "2 pods"), (9999, "9999 pods"), (10_000, "10,000 pods")]
)
def test_large_counts_have_commas(number: int, said: str) -> None:
    assert wording.count(number, "pod") == said
