"""Quantities come back as a real API server writes them; the expected forms were read from one."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpushare.devcluster.apiserver.kinds import quantity


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("0", "0"),
        ("0Mi", "0"),
        ("005", "005"),
        ("+5", "+5"),
        ("1000", "1k"),
        ("1000m", "1"),
        ("0.1", "100m"),
        ("1.500", "1.500"),
        ("5u", "1m"),
        ("1.234567", "1235m"),
        ("5e-1", "500e-3"),
        ("12E", "12E"),
        ("123456789k", "123456789k"),
        ("128974848", "128974848"),
        ("1Ki", "1Ki"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("1000000Mi", "1000000Mi"),
        ("8192Mi", "8Gi"),
        ("9764Pi", "9223372036854775807"),
        ("-", "0"),
        (1.5, "1500m"),
    ],
)
def test_a_quantity_is_written_as_the_original_writes_it(text: object, stored: str) -> None:
    assert quantity.canonical(text) == stored


@pytest.mark.parametrize("text", ["", "x", "1x", "1 ", "--1", "1.2.3", "1ki", "1Q", "1e", True, None, []])
def test_what_is_no_quantity_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="quantit"):
        quantity.canonical(text)


@given(st.integers(0, 2**40), st.sampled_from(["", "k", "M", "m", "Ki", "Mi", "Gi", "e3"]))
def test_writing_changes_neither_the_amount_nor_what_is_already_written(number: int, suffix: str) -> None:
    text = f"{number}{suffix}"
    stored = quantity.canonical(text)
    assert quantity.value(stored) == quantity.value(text)
    assert quantity.canonical(stored) == stored


def test_a_value_is_exact() -> None:
    assert quantity.value("1500m") == Fraction(3, 2)
    assert quantity.value("4Gi") == 4 * 1024**3
    assert quantity.value("-2k") == -2000
