"""`gpushare collector`, and a node part that leaves the sampling to it: their words on the command line."""

from pathlib import Path

import pytest

from gpushare import cli
from gpushare.kube.scraping.server import Listening
from gpushare.node import observer
from gpushare.node.collector.app import Config
from gpushare.node.exporter import exporter
from gpushare.node.usage.overuse import Tolerance
from tests.support import manifests
from tests.test_cli import error

NAME = "--node-name=gpu-a"


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "LOG_LEVEL", "NODE_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_alone_it_samples_as_a_node_part_and_listens_beside_one(monkeypatch: pytest.MonkeyPatch) -> None:
    config = manifests.collector_config(["collector"], monkeypatch)
    assert config == Config("gpu-a", "127.0.0.1", 12350, manifests.OBSERVING, fail_on_init_error=True)


def test_it_takes_every_option_about_what_gpus_do(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [
        "collector", "--node-name", "gpu-b", "--listen=0.0.0.0", "--port", "9000", "--sample-seconds=10",
        "--proc=/proc", "--overuse-tolerance=10%", "--overuse-grace=30", "--on-overuse=evict", "--metrics-listen=off",
        "--dcgm-names=off", "--influx=http://influxdb:8086", "--influx-interval=5", "--fail-on-init-error=false",
    ]  # fmt: skip
    observing = observer.Config(
        10.0, "/proc", Tolerance(0.1, 0), 30.0, True, exporter.Config(None, "off"), "http://influxdb:8086", 5.0
    )
    assert manifests.collector_config(words, monkeypatch) == Config("gpu-b", "0.0.0.0", 9000, observing, False)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "which node is this?"),
        ([NAME, "--sample-seconds", "0"], "--sample-seconds is 0"),
        ([NAME, "--sample-seconds", "-1"], '"-1" is not an interval'),
        ([NAME, "--port", "65536"], '"65536" is not a port'),
        ([NAME, "--memory-unit", "MiB"], "unknown option --memory-unit"),
        ([NAME, "--fail-on-init-error=maybe"], '--fail-on-init-error is "maybe"'),
        ([NAME, "gpu-b"], 'unexpected word "gpu-b"'),
    ],
)
def test_a_collector_that_is_not_understood_does_not_start(
    capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    assert error(capsys, "collector", *words)[0] == told


def test_every_option_is_in_one_of_its_two_pages(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["collector", "--help"])
    cli.main(["collector", "--help-metrics"])
    shown = capsys.readouterr().out
    _, known, _ = error(capsys, "collector", "--zzz")
    options = known.removeprefix("gpushare collector knows ").split(", ")
    assert [option for option in options if option not in shown] == []


# A node part beside it


@pytest.mark.parametrize("word", ["node", "device-plugin"])
def test_a_node_part_may_leave_the_sampling_to_others(monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    config = manifests.node_config([word, "--sample-seconds=0", "--metrics-listen=:9400"], monkeypatch)
    assert config.observing == observer.Config(sample_seconds=0.0, exporter=exporter.Config(Listening("", 9400)))


def test_so_may_one_that_sells_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    config = manifests.selling_config(["node", "--sell=gpus", "--sample-seconds", "0"], monkeypatch)
    assert config.observing.sample_seconds == 0.0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--on-overuse=evict"], "--on-overuse without samples"),
        (["--overuse-grace=5", "--overuse-tolerance=1%"], "--overuse-tolerance, --overuse-grace without samples"),
        (["--influx=http://influxdb:8086"], "--influx without samples"),
        (["--proc=/proc"], "--proc without samples"),
        (["--dcgm-names=on", "--counters=c.csv"], "--dcgm-names, --counters without samples"),
    ],
)
def test_what_needs_samples_is_refused_without_them(
    capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    for command in (["node"], ["node", "--sell=gpus"], ["device-plugin"]):
        assert error(capsys, *command, NAME, "--sample-seconds=0", *words) == [
            told, "with --sample-seconds 0 nobody looks at what GPUs do", "leave it out, or --sample-seconds 5",
        ]  # fmt: skip


@pytest.mark.parametrize(("words", "fails"), [([], True), (["--fail-on-init-error"], True),
    (["--fail-on-init-error=false"], False), (["--fail-on-init-error", "F"], False)])  # fmt: skip
def test_a_node_without_a_driver_is_an_error_unless_it_is_said_that_it_is_none(
    monkeypatch: pytest.MonkeyPatch, words: list[str], fails: bool
) -> None:
    assert manifests.node_config(["node", *words], monkeypatch).fail_on_init_error is fails
