"""The page that Prometheus reads on a node. `page.txt` is the whole of it, for a small world."""

from pathlib import Path

import msgspec
import pytest

from gpushare.gpu.sample import Sample
from gpushare.node.exporter.page import Counted, Wanted, escaped, page
from gpushare.node.usage.model import Usage
from tests.node.exporter import made

GOLDEN = Path(__file__).with_name("page.txt")


def series(text: str, name: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith((name + "{", name + " "))]


def test_the_page_of_a_small_world_is_the_one_that_boards_are_made_for() -> None:
    assert page(made.USAGE, made.COUNTED, Wanted()) == GOLDEN.read_text()


def test_each_gpu_has_one_series_of_each_of_nvidias_names() -> None:
    text = page(made.USAGE, made.COUNTED, Wanted())
    assert len(series(text, "DCGM_FI_DEV_FB_USED")) == 2  # the third GPU does not tell


def test_a_gpu_that_does_not_tell_its_power_has_no_power_series() -> None:
    of_b = [line for line in page(made.USAGE, wanted=Wanted()).splitlines() if 'UUID="GPU-b"' in line]
    assert not [line for line in of_b if "POWER" in line or "power" in line]
    assert any(line.startswith("DCGM_FI_DEV_GPU_UTIL") and line.endswith(" 0") for line in of_b)


def test_only_a_pod_that_has_the_whole_gpu_is_named_with_nvidias_names() -> None:
    shared, whole = series(page(made.USAGE, wanted=Wanted()), "DCGM_FI_DEV_GPU_UTIL")
    assert "pod=" not in shared
    assert shared.index("DCGM_FI_DRIVER_VERSION") > shared.index("Hostname")
    assert ',DCGM_FI_DRIVER_VERSION="580.65.06",container="main",namespace="ml",pod="train"}' in whole


def test_without_figures_only_what_is_given_out_and_the_old_time_stay() -> None:
    blind = tuple(msgspec.structs.replace(gpu, sample=None, unattributed=None) for gpu in made.USAGE.gpus)
    text = page(Usage("node-1", blind, sampled_at=1.5, failure="the driver hangs"), wanted=Wanted())
    assert {line.split("{")[0] for line in text.splitlines() if line.startswith("DCGM")} == {"DCGM_FI_DEV_XID_ERRORS"}
    assert len(series(text, "gpushare_gpu_memory_granted_bytes")) == 3
    assert not series(text, "gpushare_gpu_memory_unattributed_bytes")
    assert series(text, "gpushare_usage_timestamp_seconds") == ['gpushare_usage_timestamp_seconds{node="node-1"} 1.500']


def test_a_driver_that_never_answered_leaves_no_time() -> None:
    assert "gpushare_usage_timestamp_seconds" not in page(Usage("node-1", ()))


def test_nvidias_names_are_left_out_where_its_exporter_runs() -> None:
    assert "DCGM" not in page(made.USAGE, made.COUNTED)


def test_known_errors_are_counted_from_zero_and_unknown_ones_once_they_come() -> None:
    text = page(made.USAGE, made.COUNTED)
    counts = series(text, "gpushare_xid_errors_total")
    assert 'gpushare_xid_errors_total{node="node-1",gpu="1",UUID="GPU-b",xid="79"} 0' in counts
    assert 'gpushare_xid_errors_total{node="node-1",gpu="2",UUID="GPU-c",xid="79"} 1' in counts
    assert [line for line in counts if 'xid="999"' in line] == [
        'gpushare_xid_errors_total{node="node-1",gpu="2",UUID="GPU-c",xid="999"} 1'
    ]


def test_over_use_is_there_only_while_a_container_of_this_node_is_over() -> None:
    assert len(series(page(made.USAGE, made.COUNTED), "gpushare_container_overuse_bytes")) == 1
    assert not series(page(made.USAGE, Counted()), "gpushare_container_overuse_bytes")


def test_over_use_of_a_container_whose_use_is_unknown_now_is_not_there() -> None:
    """It is remembered for a grace: the amount would be an old one."""
    silent = msgspec.structs.replace(made.SERVE, used=None, sm=None)
    gpu = msgspec.structs.replace(made.USAGE.gpus[0], sample=None, containers=(silent,))
    text = page(msgspec.structs.replace(made.USAGE, gpus=(gpu,)), made.COUNTED)
    assert not series(text, "gpushare_container_overuse_bytes")


def test_the_label_of_the_host_has_one_of_two_names() -> None:
    text = page(made.USAGE, wanted=Wanted(hostname_label="hostname"))
    assert ',hostname="node-1",' in text
    assert "Hostname=" not in text


@pytest.mark.parametrize(("value", "shown"), [('a"b', 'a\\"b'), ("a\\b", "a\\\\b"), ("a\nb", "a\\nb")])
def test_values_of_labels_cannot_break_out(value: str, shown: str) -> None:
    assert escaped(value) == shown
    usage = msgspec.structs.replace(made.USAGE, node=value)
    assert f'node="{shown}"' in page(usage)


def test_large_numbers_are_not_rounded() -> None:
    gpu = msgspec.structs.replace(made.USAGE.gpus[0], sample=Sample("GPU-a", 0, energy=2**53 + 1, power=1))
    text = page(msgspec.structs.replace(made.USAGE, gpus=(gpu,)), wanted=Wanted())
    assert series(text, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")[0].endswith(f" {2**53 + 1}")
    assert series(text, "DCGM_FI_DEV_POWER_USAGE")[0].endswith(" 0.001")
