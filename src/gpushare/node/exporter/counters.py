"""The file with which dcgm-exporter is told what to export, read for the same purpose.

Pure. Each line is `NAME, type, help`; the type is gauge, counter or label; `#` begins a comment. Only what the file
names is exported of NVIDIA's names, with the help of the file. What NVML cannot tell is left out.
"""

import csv
from typing import Final, NamedTuple

from gpushare.node.exporter import dcgm
from gpushare.node.exporter.page import Wanted
from gpushare.obs.errors import UserError

KINDS: Final = ("gauge", "counter", "histogram", "summary", "label")  # dcgm-exporter accepts these
WAY: Final = "a line such as: DCGM_FI_DEV_GPU_TEMP, gauge, GPU temperature (in C)."


class Counters(NamedTuple):
    wanted: Wanted
    left_out: tuple[str, ...]  # names of the file that cannot be served here


def read(text: str, name: str) -> Counters:
    """`name`: of the file, for errors."""
    served = {figure.name: figure for figure in dcgm.FIGURES}
    figures: dict[str, dcgm.Figure] = {}
    left_out: list[str] = []
    driver_label = False
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        field, kind, help_text = _fields(line, f"{name}, line {number}")
        if field == dcgm.DRIVER and kind == "label":
            driver_label = True
        elif field in served and kind in ("gauge", "counter"):
            figures[field] = served[field]._replace(kind=kind, help=help_text)
        else:
            left_out.append(field)
    return Counters(Wanted(tuple(figures.values()), driver_label), tuple(dict.fromkeys(left_out)))


def _fields(line: str, where: str) -> tuple[str, str, str]:
    try:
        fields = [field.strip() for field in next(csv.reader([line], skipinitialspace=True))]
    except csv.Error as error:
        raise UserError(f"{where}: not a counter", str(error), WAY) from error
    if len(fields) != 3:
        raise UserError(f"{where}: not a counter", f"it has {len(fields)} fields, not three", WAY)
    field, kind, help_text = fields
    if not (field.isascii() and field.isidentifier()):
        raise UserError(f"{where}: not a counter", f'"{field:.40}" is not a name of DCGM', WAY)
    if kind.lower() not in KINDS:
        raise UserError(f"{where}: not a counter", f'"{kind:.40}" is not a type: {", ".join(KINDS)}', WAY)
    return field, kind.lower(), help_text
