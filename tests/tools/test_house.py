"""The source stays easy to read: files of a moderate size, folders that fit on one screen."""

import statistics
from pathlib import Path

from tests.support.links import ROOT

SOURCES = [path for path in (ROOT / "src").rglob("*.py") if not path.name.endswith(("_pb2.py", "_pb2_grpc.py"))]


def lines(path: Path) -> int:
    return len(path.read_text("utf-8").splitlines())


def test_half_of_all_source_files_have_at_most_130_lines() -> None:
    assert statistics.median(map(lines, SOURCES)) <= 130


def test_no_source_file_has_more_than_400_lines() -> None:
    assert {str(path.relative_to(ROOT)): lines(path) for path in SOURCES if lines(path) > 400} == {}


def test_no_folder_of_the_source_has_more_than_14_files() -> None:
    folders = {path.parent for path in SOURCES}
    crowded = {str(folder.relative_to(ROOT)): len(list(folder.glob("*.py"))) for folder in folders}
    assert {name: count for name, count in crowded.items() if count > 14} == {}
