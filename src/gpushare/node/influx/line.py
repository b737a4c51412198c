"""Points as InfluxDB reads them: line protocol, `measurement,tag=value field=value timestamp`.

Pure. What cannot be said in it is left out, never written wrongly: InfluxDB refuses a whole request for one bad line.
"""

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

Value = str | int | float | bool | None

SMALLEST, LARGEST = -(1 << 63), (1 << 63) - 1
# A backslash in a name or a tag has no spelling of its own: at the end it would take the next comma with it.
_MEASUREMENT: Final = str.maketrans({",": "\\,", " ": "\\ ", "\\": "/", "\n": "\\ ", "\r": "\\ "})
_NAME: Final = _MEASUREMENT | str.maketrans({"=": "\\="})
_STRING: Final = str.maketrans({'"': '\\"', "\\": "\\\\", "\n": " ", "\r": " "})


class Point(NamedTuple):
    """`at`: seconds since 1970. A tag that is empty, and a field that is None, is unknown."""

    measurement: str
    tags: Mapping[str, str]
    fields: Mapping[str, Value]
    at: int


def encode(point: Point) -> str:
    """One line without a line break in it; empty if nothing is known."""
    fields = ",".join(
        f"{name.translate(_NAME)}={text}" for name, value in point.fields.items() if (text := _value(value))
    )
    if not fields:
        return ""
    tags = "".join(
        f",{name.translate(_NAME)}={value.translate(_NAME)}" for name, value in sorted(point.tags.items()) if value
    )
    return f"{point.measurement.translate(_MEASUREMENT)}{tags} {fields} {point.at}"


def _value(value: Value) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return f"{value}i" if SMALLEST <= value <= LARGEST else ""
        case float():
            return repr(value) if math.isfinite(value) else ""
        case str():
            return f'"{value.translate(_STRING)}"'
    return ""
