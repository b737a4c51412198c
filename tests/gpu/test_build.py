"""The stand-in for NVIDIA's library can be built, or it is said in one sentence why not."""

from pathlib import Path

import pytest

from tests.support.nvml import build


def test_it_is_built_once_for_each_version_of_its_source(library: Path) -> None:
    before = library.stat().st_mtime_ns
    assert build.cached() == library
    assert library.stat().st_mtime_ns == before


def test_without_a_compiler_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        build.NotBuilt, match=r"needs gcc: install it \(Debian, Ubuntu: apt-get install gcc libc6-dev\)"
    ):
        build.build(tmp_path)


def test_what_the_compiler_says_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "broken.c"
    source.write_text("this is not C\n")
    monkeypatch.setattr(build, "SOURCE", source)
    with pytest.raises(build.NotBuilt) as raised:
        build.build(tmp_path)
    assert "\n" not in str(raised.value)
    assert "broken.c" in str(raised.value)
    assert not list(tmp_path.glob("*.so*"))
