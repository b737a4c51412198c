"""`gpushare replay` on the command line: what it prints, and what it says to bad input."""

import csv
import io
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gpushare import cli
from gpushare.cli.traces.replaying import KNOWN, Bar
from gpushare.core.facts.policies import POLICIES
from gpushare.ctl.screen import Screen
from gpushare.sim.trace import Gpu, Node, Pod, Trace, written
from tests.sim import small


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """Pods and nodes of a small trace."""
    return small.openb(small.trace(), tmp_path)


def replayed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main(["replay", *words]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def error(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """What, why and way. Nothing is on stdout then."""
    assert cli.main(["replay", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert [line[:7] for line in lines] == ["error: ", "  why: ", "  try: "], err
    return [line[7:] for line in lines]


def test_its_help_fits_a_terminal_and_names_every_policy(capsys: pytest.CaptureFixture[str]) -> None:
    page = replayed(capsys, "--help")
    assert len(page.splitlines()) < 24
    assert max(map(len, page.splitlines())) <= 80
    assert all(name in page for name in KNOWN)


def test_the_table_has_a_row_for_each_policy(capsys: pytest.CaptureFixture[str], files: tuple[str, str]) -> None:
    pods, nodes = files
    out = replayed(capsys, pods, "--nodes", nodes, "--policy", "binpack,spread,vrc", "--seed", "1", "2")
    lines = out.splitlines()
    assert lines[0].startswith("12 nodes, 56 GPUs, ")
    assert lines[0].endswith("mean of seeds 1, 2")
    assert [line.split()[0] for line in lines[4:7]] == ["binpack", "spread", "vrc"]
    assert max(map(len, lines)) <= 80
    assert lines[3].split()[1:6:2] == ["90", "100", "129"]


def test_the_seeds_are_named_as_long_as_they_are_few(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    file.write_text(written((Node("n", 10, 10, (Gpu(100),)),), (Pod("p", 0, 0, 1, 50),)))
    seeds = list(map(str, range(1, 12)))
    assert "; mean of seeds 1, 2, 3, 4, 5, 6, 7, 8, 9, 10\n" in replayed(
        capsys, str(file), "--policy", "vrc", "--seed", *seeds[:10]
    )
    assert "; mean of 11 seeds\n" in replayed(capsys, str(file), "--policy", "vrc", "--seed", *seeds)


def test_json_has_every_run_and_csv_every_point(capsys: pytest.CaptureFixture[str], files: tuple[str, str]) -> None:
    pods, nodes = files
    words = [pods, "--nodes", nodes, "--policy", "binpack,fgd", "--seed", "4,5", "--load", "1.1"]
    document = json.loads(replayed(capsys, *words, "-o", "json"))
    runs = document["runs"]
    assert [(run["policy"], run["seed"]) for run in runs] == [
        ("binpack", 4), ("binpack", 5), ("fgd", 4), ("fgd", 5),
    ]  # fmt: skip
    rows = list(csv.DictReader(io.StringIO(replayed(capsys, *words, "-o", "csv"))))
    points = [(run["policy"], run["seed"], point) for run in runs for point in run["points"]]
    assert len(rows) == len(points)
    for row, (policy, seed, point) in zip(rows, points, strict=True):
        assert (row["policy"], row["seed"], row["load"]) == (policy, str(seed), str(point["load"]))
        assert float(row["allocated"]) == point["allocated"]
        assert point["load"] <= 110


def test_the_picture_is_well_formed_and_names_every_policy(
    capsys: pytest.CaptureFixture[str], files: tuple[str, str]
) -> None:
    pods, nodes = files
    words = [pods, "--nodes", nodes, "--policy", ",".join(KNOWN), "-o", "svg"]
    picture = ElementTree.fromstring(replayed(capsys, *words))
    lines = [one for one in picture.iter() if one.tag.endswith("polyline")]
    assert len(lines) == len(KNOWN)
    texts = [one.text or "" for one in picture.iter() if one.tag.endswith("text")]
    assert all(any(text.startswith(f"{name} ") for text in texts) for name in KNOWN)
    for line in lines:
        places = [tuple(map(float, place.split(","))) for place in line.attrib["points"].split()]
        assert all(0 <= x <= 760 and 0 <= y <= 440 for x, y in places)


@pytest.mark.parametrize("output", ["table", "json", "csv", "svg"])
def test_pods_that_come_and_end(capsys: pytest.CaptureFixture[str], tmp_path: Path, output: str) -> None:
    made = small.trace(pods=100, nodes=4)
    (tmp_path / "mine.json").write_text(written(made.nodes, made.pods))
    out = replayed(capsys, str(tmp_path / "mine.json"), "--policy", "binpack", "--departures", "-o", output)
    if output == "table":
        assert "NEVER RAN" in out
    elif output == "json":
        assert json.loads(out)["runs"][0]["over_time"]["never_ran"] >= 0
    elif output == "csv":
        assert len(out.splitlines()) == 101


def test_piped_output_is_the_same_each_time(capsys: pytest.CaptureFixture[str], files: tuple[str, str]) -> None:
    pods, nodes = files
    one, two = [replayed(capsys, pods, "--nodes", nodes, "--policy", "vrc,fgd", "-o", "csv") for _ in range(2)]
    assert one == two


def test_pods_that_no_allowed_node_takes_are_a_note(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    nodes = (Node("n", 1000, 1000, (Gpu(1000, "T4"),)),)
    (tmp_path / "t.json").write_text(written(nodes, (Pod("p", 1, 1, 1, 500), Pod("q", 1, 1, 1, 500, ("H100",)))))
    assert cli.main(["replay", str(tmp_path / "t.json"), "--policy", "best-fit"]) == 0
    out, err = capsys.readouterr()
    assert err == "note: 1 pods fit no node of the models that they may use: q\n"
    assert "share" in out


@pytest.mark.parametrize(
    ("words", "what", "why"),
    [
        ([], "no policy is named", "policies: binpack, spread"),
        (["--policy", "binpak"], 'unknown policy "binpak"', "policies: binpack, spread"),
        (["--policy", "binpack,keti"], "keti cannot be replayed", "nobody measured that"),
        (["--policy", "metric"], "metric cannot be replayed", "nobody measured that"),
        (["--policy", "vrc", "--load", "0"], '"0" is not a load', "more than 0, and 10 at most"),
        (["--policy", "vrc", "--load", "-1"], '"-1" is not a load', "more than 0"),
        (["--policy", "vrc", "--load", "100"], '"100" is not a load', "10 at most"),
        (["--policy", "vrc", "--load", "nan"], '"nan" is not a load', "10 at most"),
        (["--policy", "vrc", "--seed", "x"], '"x" is not a seed', "whole numbers"),
        (["--policy", "vrc", "-o", "png"], 'unknown output format "png"', "table, json, csv, svg"),
        (["--policy", "vrc", "--departures", "--load", "1"], "--load and --departures exclude each other", "when"),
        (["--policy", "vrc", "--arrivals", "missing.npz"], "missing.npz cannot be read", "no such file"),
        (["--policy", "vrc", "--polcy"], "unknown option --polcy", "knows --policy"),
    ],
)
def test_words_that_are_not_understood(
    capsys: pytest.CaptureFixture[str], files: tuple[str, str], words: list[str], what: str, why: str
) -> None:
    said = error(capsys, files[0], "--nodes", files[1], *words)
    assert said[0] == what
    assert why in said[1]


def test_a_load_that_the_first_pod_exceeds(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(written((Node("n", 1, 1, (Gpu(10),) * 3),), (Pod("p", 1, 1, 2),)))
    for load in ("0.5", "0.00000001"):
        what, why, _ = error(capsys, str(tmp_path / "t.json"), "--policy", "binpack", "--load", load)
        assert (what, "the first pod asks for more than" in why) == ("no pod came", True)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_on_a_terminal_is_gone_at_the_end() -> None:
    err = Terminal()
    bar = Bar(Screen(io.StringIO(), err))
    bar.show(500, 1000)
    bar.wipe()
    assert err.getvalue() == f"\r{'#' * 20}{'.' * 20} 500 of 1,000 pods\r\x1b[2K"


def test_there_is_no_bar_without_a_terminal() -> None:
    err = io.StringIO()
    bar = Bar(Screen(io.StringIO(), err))
    bar.show(500, 1000)
    bar.wipe()
    assert err.getvalue() == ""


def test_every_policy_can_be_replayed_or_says_why_not() -> None:
    assert set(POLICIES) - set(KNOWN) == {"keti", "metric"}


def test_times_are_needed_where_pods_end(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    made = small.trace()
    pods, nodes = small.openb(made, tmp_path)
    text = "".join([",".join(line.split(",")[:6]) + "\n" for line in Path(pods).read_text().splitlines()])
    Path(pods).write_text(text)
    assert error(capsys, pods, "--nodes", nodes, "--policy", "vrc", "--departures")[0] == "the trace has no times"
    at_once = Trace(made.nodes, (Pod("a", 1, 1, 1), Pod("b", 1, 1, 1)))
    (tmp_path / "t.json").write_text(written(at_once.nodes, at_once.pods))
    said = error(capsys, str(tmp_path / "t.json"), "--policy", "vrc", "--departures")
    assert said[0] == "all pods of the trace come at once"


def test_a_trace_without_gpu_pods_has_no_load(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    nodes = (Node("n", 1000, 1000, (Gpu(1000, "T4"),)),)
    (tmp_path / "t.json").write_text(written(nodes, (Pod("p", 1, 1),)))
    assert error(capsys, str(tmp_path / "t.json"), "--policy", "vrc")[0] == "no pod asks for a GPU"


def test_bad_files_are_told_with_the_row(capsys: pytest.CaptureFixture[str], files: tuple[str, str]) -> None:
    pods, nodes = files
    with Path(pods).open("a") as file:
        file.write("pod-9999,1,1,-2,1000,,,,\n")
    said = error(capsys, pods, "--nodes", nodes, "--policy", "vrc")
    assert said[0] == f"{pods}, row 62: it cannot be replayed"
    assert said[1] == 'num_gpu is "-2"'
