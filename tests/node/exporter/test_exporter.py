"""The whole page of a node: what GPUs do, what the process counts of itself, and when NVIDIA's names are there."""

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Gauge

from gpushare.node.exporter.exporter import Config, DcgmNames, Exporter
from gpushare.node.usage.model import Usage
from gpushare.obs.errors import UserError
from tests.node.exporter import made


class World:
    def __init__(self, config: Config) -> None:
        self.usage: Usage | None = made.USAGE
        self.dcgm_runs = False
        registry = CollectorRegistry()
        Gauge("gpushare_events", "Events.", registry=registry).set(3)
        self.exporter = Exporter(
            config, registry, usage=lambda: self.usage, counted=lambda: made.COUNTED, dcgm_runs=lambda: self.dcgm_runs
        )

    def shown(self) -> str:
        body, content_type = self.exporter.page()
        assert content_type.startswith("text/plain; version=0.0.4")
        return body.decode()


def test_one_page_has_everything() -> None:
    shown = World(Config()).shown()
    assert "\nDCGM_FI_DEV_GPU_UTIL{" in shown
    assert "\ngpushare_gpu_healthy{" in shown
    assert "\ngpushare_events 3.0\n" in shown


def test_before_the_gpus_are_published_it_tells_of_itself() -> None:
    world = World(Config())
    world.usage = None
    assert world.shown().startswith("# HELP gpushare_events Events.\n")


@pytest.mark.parametrize(
    ("names", "runs", "there"),
    [("auto", False, True), ("auto", True, False), ("on", True, True), ("off", False, False)],
)
def test_nvidias_names_are_there_unless_its_exporter_has_them(names: DcgmNames, runs: bool, there: bool) -> None:
    world = World(Config(dcgm_names=names))
    world.dcgm_runs = runs
    assert ("DCGM_FI_DEV_GPU_UTIL" in world.shown()) is there


def test_a_counters_file_and_the_label_of_the_host_are_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "c.csv"
    file.write_text("DCGM_FI_DEV_GPU_TEMP, gauge, Heat.\nDCGM_FI_PROF_DRAM_ACTIVE, gauge, Memory.\n")
    shown = World(Config(counters=str(file), hostname_label="hostname")).shown()
    assert "# HELP DCGM_FI_DEV_GPU_TEMP Heat.\n" in shown
    assert ',hostname="node-1"} 61\n' in shown
    assert "DCGM_FI_DEV_GPU_UTIL" not in shown
    assert caplog.text.count("need DCGM itself") == 1


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"#" * (1 << 20) + b"##"])
def test_a_counters_file_that_cannot_be_read_is_told(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "c.csv"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UserError) as caught:
        World(Config(counters=str(file)))
    assert caught.value.what == f"cannot read the counters in {file}"
