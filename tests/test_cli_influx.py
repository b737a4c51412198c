"""`gpushare node --influx`: its options, and that a password on the command line is refused without being repeated."""

from pathlib import Path

import pytest

from tests.support import manifests
from tests.test_cli import error

SECRET = "hunter2-secret"
HERE = "http://influxdb:8086"


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "LOG_LEVEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_an_address_and_an_interval_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["node", "--sell=gpus", "--influx", f"{HERE}/", "--influx-interval=2.5"]
    observing = manifests.selling_config(words, monkeypatch).observing
    assert (observing.influx, observing.influx_seconds) == (HERE, 2.5)
    monkeypatch.setenv("INFLUX_ORG", "only with --influx does this matter")
    without = manifests.selling_config(["node", "--sell=gpus"], monkeypatch).observing
    assert (without.influx, without.influx_seconds) == ("", 10.0)


@pytest.mark.parametrize("url", [f"http://keti:{SECRET}@influxdb:8086", f"{HERE}?u=keti&p={SECRET}"])
def test_a_password_in_the_address_is_refused_and_not_repeated(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = error(capsys, "node", "--node-name=gpu-a", "--influx", url)
    assert said[0] == "--influx is not only an address"
    assert SECRET not in "".join(said)


def test_bad_credentials_are_told_before_anything_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFLUX_TOKEN", SECRET)
    said = error(capsys, "node", "--node-name=gpu-a", "--influx", HERE)
    assert said[0] == "INFLUX_ORG is missing"
    assert SECRET not in "".join(said)


@pytest.mark.parametrize("text", ["0", "-1", "often", "9999999", "1e3"])
def test_what_is_no_interval_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = error(capsys, "node", "--node-name=gpu-a", "--influx", HERE, f"--influx-interval={text}")
    assert said[0] == f'"{text}" is not an interval'
    assert said[2] == "--influx-interval 10"
