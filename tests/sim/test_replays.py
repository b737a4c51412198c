"""`make bench-packing`: what it says of a folder of published results, here a small one of our own."""

import csv
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench import replays
from bench.published import EXACT, FILES, LOAD, LOADS, Published, figures
from gpushare.obs.errors import UserError
from gpushare.sim import arrivals, loading
from tests.sim import small

TRACE, SEED = small.trace(60, 8), 42


def npy(numbers: Sequence[int]) -> bytes:
    words = f"{{'descr': '<i4', 'fortran_order': False, 'shape': ({len(numbers)},), }}"
    header = words.ljust(117).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + struct.pack(f"<{len(numbers)}i", *numbers)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The results are those of our own replays."""
    monkeypatch.setattr(replays, "TRACES", ("tiny",))
    for name in ("traces", "arrivals", "published"):
        (tmp_path / name).mkdir()
    pods, nodes = small.openb(TRACE, tmp_path / "traces")
    Path(pods).rename(tmp_path / "traces" / "openb_pod_list_tiny.csv")
    Path(nodes).rename(tmp_path / "traces" / "openb_node_list_gpu_node.csv")
    order, ranks = arrivals.drawn(TRACE, SEED, LOAD)
    with zipfile.ZipFile(tmp_path / "arrivals" / "tiny.npz", "w") as file:
        file.writestr(f"order_{SEED}.npy", npy(order))
        file.writestr(f"rank_{SEED}.npy", npy(ranks))
    points = {
        theirs: {point.load: point for point in loading.replay(TRACE, ours, order, ranks, LOAD).points}
        for ours, theirs in EXACT.items()
    }
    for name, figure in FILES.items():
        with (tmp_path / "published" / name).open("w", newline="") as text:
            rows = csv.writer(text)
            rows.writerow(["workload", "sc_policy", "seed", *LOADS])
            for theirs, found in points.items():
                values = [getattr(found[at], figure) if at in found else "" for at in LOADS]
                rows.writerow(["openb_pod_list_tiny", theirs, SEED, *values])
    return tmp_path


def test_every_policy_has_a_row_and_published_ones_say_how_many_figures_are_equal(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert replays.measure(Published(str(folder)), "", [SEED]) == 0
    said = capsys.readouterr()
    rows = {line.split()[1]: line for line in said.out.splitlines()[1:]}
    assert list(rows) == replays.MEASURED
    assert all(f"{figures()}/{figures()}" in rows[policy] for policy in EXACT)
    assert said.err == "all as published\n"


def test_a_policy_that_differs_is_an_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = folder / "published" / "frag.csv"
    file.write_text(file.read_text().replace("06-FGD", "6-FGD").replace("05-BestFit", "06-FGD"))
    assert replays.measure(Published(str(folder)), "fgd", [SEED]) == 1
    assert capsys.readouterr().err == "1 differ from what was published\n"


@pytest.mark.parametrize("data", ["", "nowhere"])
def test_without_results_it_is_bad_input(
    data: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DATA", data)
    monkeypatch.setattr("sys.argv", ["bench-packing"])
    assert replays.main() == 2
    assert "DATA=FOLDER" in capsys.readouterr().err


def test_a_folder_without_results_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no published results"):
        Published(str(tmp_path))
