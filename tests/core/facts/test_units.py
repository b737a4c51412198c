"""Quantities are read as the API server writes them."""

from decimal import Decimal, InvalidOperation

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpushare.core.facts import units

SUFFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
SUFFIXES |= {"m": Decimal("0.001"), "u": Decimal("0.000001"), "n": Decimal("0.000000001")}  # type: ignore[dict-item]
BINARY = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60}


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("7k", 7000),
        ("7000", 7000),
        (7000, 7000),
        ("10G", 10**10),
        ("0", 0),
        ("-0", 0),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1E", 10**18),
        ("2500m", None),
        ("3000m", 3),
        ("1.5k", 1500),
        ("+5", 5),
        (".5k", 500),
        ("5.", 5),
        (3.0, 3),
    ],
)
def test_canonical_forms_are_understood(written: str | int | float, value: int | None) -> None:
    amount = units.parse(written)
    assert (amount.value if amount else None) == value


@pytest.mark.parametrize("written", ["", " 5", "5 ", "five", "-1", -1, "1.5", 1.5, "1e-1", "Gi", "5Gib", "1e9999", "٣"])
def test_what_is_no_whole_number_is_not_read_as_something_else(written: str | int | float) -> None:
    assert units.parse(written) is None


def test_a_byte_suffix_is_remembered() -> None:
    assert units.parse("4Gi") == units.Amount(4 << 30, binary=True)
    assert units.parse("4G") == units.Amount(4 * 10**9, binary=False)


@pytest.mark.parametrize("written", ["9" * 65, "1" * 100_000, "1e999", "nan", "inf"])
def test_huge_or_strange_numbers_cost_nothing_and_raise_nothing(written: str) -> None:
    units.parse(written)


@given(
    st.from_regex(r"[+-]?[0-9]{0,6}(\.[0-9]{0,4})?", fullmatch=True),
    st.sampled_from([*SUFFIXES, *BINARY]),
)
def test_numbers_agree_with_decimal_arithmetic(digits: str, suffix: str) -> None:
    try:
        expected = Decimal(digits) * (BINARY.get(suffix) or SUFFIXES[suffix])
    except InvalidOperation:
        expected = None
    whole = expected is not None and expected >= 0 and expected == expected.to_integral_value()
    amount = units.parse(digits + suffix)
    assert (amount.value if amount else None) == (int(expected) if whole and expected is not None else None)


@pytest.mark.parametrize(
    ("size", "unit", "number"), [(4 << 30, "MiB", 4096), (10**10, "MiB", 9537), (1, "MiB", 1), (10**10, "GiB", 10)]
)
def test_advice_rounds_up(size: int, unit: str, number: int) -> None:
    assert units.in_unit(size, unit) == number
