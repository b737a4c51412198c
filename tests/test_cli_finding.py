"""The command line of `gpushare finder`, and `--discovery` of the node part."""

import pytest

from gpushare.cli import discovering, main
from gpushare.node.discovery.discovery import Config
from gpushare.obs.errors import UserError


def error(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert main(args) == 2
    return capsys.readouterr().err


def test_the_finder_has_to_know_its_node(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NODE_NAME", raising=False)
    assert "which node is this?" in error(capsys, "finder")


def test_a_misspelt_option_of_the_finder_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--sysfs" in error(capsys, "finder", "--sysf=/sys")


def test_the_page_of_the_finder_says_what_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["finder", "--help"]) == 0
    assert "--sysfs DIR" in capsys.readouterr().out


def test_discovery_is_off_unless_somebody_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POD_NAME", raising=False)
    monkeypatch.setenv("POD_NAMESPACE", "gpu-operator")
    assert discovering.config("off") is None
    assert discovering.config("auto") == Config("auto", "gpu-operator")


def test_an_unknown_way_of_discovery_is_told_with_those_there_are() -> None:
    with pytest.raises(UserError) as caught:
        discovering.config("nfd")
    assert all(way in caught.value.why for way in ("off", "auto", "labels", "nodefeature"))


@pytest.mark.parametrize("words", [("node",), ("node", "--sell=gpus")])
def test_both_kinds_of_node_parts_take_it(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    assert "--discovery" in error(capsys, *words, "--node-name=a", "--discovery=nfd")
