"""A counters file of dcgm-exporter says which of NVIDIA's names are exported."""

import pytest

from gpushare.node.exporter import counters
from gpushare.node.exporter.page import page
from gpushare.obs.errors import UserError
from tests.node.exporter import made

FILE = """\
# Format
# If line starts with a '#' it is considered a comment
# DCGM FIELD, Prometheus metric type, help message

DCGM_FI_DEV_GPU_TEMP, gauge, GPU temperature (in C).
  DCGM_FI_DEV_POWER_USAGE,gauge,"Power draw, in W."
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE, gauge, Ratio of cycles the tensor pipe is active.
DCGM_FI_DEV_SERIAL, label, Serial number
"""


def test_only_what_the_file_names_is_exported_with_its_help() -> None:
    found = counters.read(FILE, "c.csv")
    text = page(made.USAGE, wanted=found.wanted)
    assert "# HELP DCGM_FI_DEV_GPU_TEMP GPU temperature (in C).\n" in text
    assert "# HELP DCGM_FI_DEV_POWER_USAGE Power draw, in W.\n" in text
    assert {line.split("{")[0] for line in text.splitlines() if line.startswith("DCGM")} == {
        "DCGM_FI_DEV_GPU_TEMP",
        "DCGM_FI_DEV_POWER_USAGE",
    }


def test_what_nvml_cannot_tell_is_named_and_left_out() -> None:
    assert counters.read(FILE, "c.csv").left_out == ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_DEV_SERIAL")


def test_the_drivers_version_is_a_label_only_if_the_file_says_so() -> None:
    line = "DCGM_FI_DRIVER_VERSION, label, Driver Version\n"
    assert "DCGM_FI_DRIVER_VERSION" not in page(made.USAGE, wanted=counters.read(FILE, "c.csv").wanted)
    assert 'DCGM_FI_DRIVER_VERSION="580.65.06"' in page(made.USAGE, wanted=counters.read(FILE + line, "c.csv").wanted)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("DCGM_FI_DEV_GPU_TEMP, gauge", "it has 2 fields, not three"),
        ("DCGM_FI_DEV_GPU_TEMP, gauge, a, b", "it has 4 fields, not three"),
        (f"DCGM_FI_DEV_GPU_TEMP, gauge, {'x' * 140_000}", "field larger than field limit (131072)"),
        ("DCGM FI, gauge, a", '"DCGM FI" is not a name of DCGM'),
        ("DCGM_FI_DEV_GPU_TEMP, dial, a", '"dial" is not a type: gauge, counter, histogram, summary, label'),
    ],
)
def test_a_line_that_is_no_counter_is_told_with_its_number(line: str, why: str) -> None:
    with pytest.raises(UserError) as caught:
        counters.read(f"# first\n{line}\n", "c.csv")
    assert (caught.value.what, caught.value.why) == ("c.csv, line 2: not a counter", why)
