"""Kubernetes quantities, read the way the API server writes them.

The API server rewrites what people wrote: `7000` becomes `7k`, `10000000000` becomes `10G`; binary suffixes stay. So a
decimal suffix says nothing about what was meant, while `Gi` always means bytes.
"""

import re
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from gpushare.core.facts import names
from gpushare.core.facts.objects import Quantity

LONGEST_SHOWN = 20  # characters of an amount in a sentence
LONGEST = 64  # characters; a longer number cannot be GPU memory, and must not cost time
MOST_AMOUNTS = 4096  # remembered: few are written in many pods
_QUANTITY = re.compile(r"([+-]?)(\d*)(?:\.(\d*))?(?:([KMGTPE]i)|[eE]([+-]?\d{1,3})|([numkMGTPE]))?", re.ASCII)
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
TIB_IN = {names.MIB: 1 << 20, names.GIB: 1 << 10}  # no GPU is larger than 1 TiB
BYTES_IN = {names.MIB: 1 << 20, names.GIB: 1 << 30}


class Amount(NamedTuple):
    """A whole number, and whether it was written with a byte suffix (`Gi`)."""

    value: int
    binary: bool


def parse(quantity: Quantity) -> Amount | None:
    """The whole number a quantity stands for, or None: negative, fractional or no quantity at all."""
    if type(quantity) is int:
        return Amount(quantity, False) if quantity >= 0 else None
    text = str(quantity)
    return _parsed(text) if len(text) <= LONGEST else None


@lru_cache(MOST_AMOUNTS)
def _parsed(text: str) -> Amount | None:
    scaled = _scaled(text)
    if scaled is None:
        return None
    digits, power, binary = scaled
    value, rest = divmod(digits, 10**-power) if power < 0 else (digits * 10**power, 0)
    return None if rest or value < 0 else Amount(value, binary)


def exact(quantity: Quantity) -> Fraction | None:
    """What a quantity stands for, fractions and negative ones too; None if it is no quantity at all."""
    scaled = _scaled(str(quantity))
    return None if scaled is None else scaled[0] * Fraction(10) ** scaled[1]


def _scaled(text: str) -> tuple[int, int, bool] | None:
    """A number, the power of ten it is to be multiplied by, and whether it was written with a byte suffix."""
    match = _QUANTITY.fullmatch(text) if len(text) <= LONGEST else None
    if match is None:
        return None
    sign, whole, fraction, binary, exponent, decimal = match.groups(default="")
    if not (whole or fraction):
        return None
    digits = int(whole + fraction) * ((1 << _BINARY[binary]) if binary else 1)
    power = (int(exponent) if exponent else _DECIMAL.get(decimal, 0)) - len(fraction)
    return -digits if sign == "-" else digits, power, bool(binary)


def number(quantities: dict[str, Quantity] | None, name: str) -> int:
    """A whole number out of a capacity map; what is missing or unreadable is 0."""
    amount = parse(quantities[name]) if quantities and name in quantities else None
    return amount.value if amount else 0


def in_unit(size_in_bytes: int, unit: str) -> int:
    """How many units hold that many bytes, rounded up: what a user who wrote `4Gi` should have written."""
    return -(-size_in_bytes // BYTES_IN[unit])  # in whole numbers: `1e999` is more than a float can hold


def converted(amount: int, given: str, wanted: str) -> int:
    """The same memory in another unit, rounded up: what a pod holds must never count as less."""
    return in_unit(amount * BYTES_IN[given], wanted)


def short(written: Quantity, longest: int = LONGEST_SHOWN) -> str:
    """What a user wrote, cut so that it fits into a sentence."""
    text = str(written)
    return text if len(text) <= longest else text[: longest - 1] + "…"


def quoted(written: Quantity) -> str:
    return f'"{short(written)}"'
