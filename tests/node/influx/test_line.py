"""Line protocol: what InfluxDB reads is what was meant, whatever the names and values are."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpushare.node.influx.line import LARGEST, SMALLEST, Point, Value, encode

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)


def field(value: Value) -> str:
    return encode(Point("m", {}, {"f": value}, 7)).removeprefix("m ").removesuffix(" 7")


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (1, "f=1i"),
        (-5, "f=-5i"),
        (0, "f=0i"),
        (True, "f=true"),
        (False, "f=false"),
        (1.5, "f=1.5"),
        ("a b,c=d", 'f="a b,c=d"'),
        ('say "hi"', r'f="say \"hi\""'),
        ("back\\slash", r'f="back\\slash"'),
        ("ends with \\", r'f="ends with \\"'),
        ("two\nlines\r", 'f="two lines "'),
        ("", 'f=""'),
        ("코리아", 'f="코리아"'),
    ],
)
def test_a_field_has_the_form_of_its_type(value: Value, written: str) -> None:
    assert field(value) == written


def test_ketis_field_names_with_parentheses_need_no_escape() -> None:
    assert encode(Point("gpumetric", {"UUID": "GPU-1"}, {"memory(total)": 1}, 9)) == (
        "gpumetric,UUID=GPU-1 memory(total)=1i 9"
    )


@pytest.mark.parametrize(
    ("name", "written"),
    [("a b", r"a\ b"), ("a,b", r"a\,b"), ("a=b", r"a\=b"), ("a\\", "a/"), ("a\nb", r"a\ b")],
)
def test_names_and_tags_are_escaped(name: str, written: str) -> None:
    measurement = written.replace("\\=", "=")  # an equals sign means nothing there
    line = encode(Point(name, {name: name}, {name: 1}, 3))
    assert line == f"{measurement},{written}={written} {written}=1i 3"


@pytest.mark.parametrize("unknown", [None, math.nan, math.inf, LARGEST + 1, SMALLEST - 1])
def test_what_is_unknown_or_cannot_be_said_is_left_out(unknown: Value) -> None:
    assert encode(Point("m", {"t": ""}, {"a": unknown, "b": 2}, 1)) == "m b=2i 1"
    assert encode(Point("m", {"t": "x"}, {"a": unknown}, 1)) == "", "a point without fields is none"


@settings(max_examples=50)
@given(TEXT, TEXT)
def test_every_point_is_one_line_and_every_string_can_be_read_back(tag: str, value: str) -> None:
    line = encode(Point("m", {"t": tag}, {"f": value}, 1))
    assert not {"\n", "\r"} & set(line)
    quoted = line[line.index('f="') + 3 : -len('" 1')]
    plain = quoted.replace("\\\\", "\0\0").replace('\\"', '"').replace("\0\0", "\\")
    if "\0" not in value:
        assert plain == value.replace("\n", " ").replace("\r", " ")
