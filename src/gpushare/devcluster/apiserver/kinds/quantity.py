"""Kubernetes quantities, rewritten as the API server rewrites them: `7000` is stored as `7k`, `4096Mi` as `4Gi`.

Pure. A client that sends `7000` and gets `7k` back must be able to compare them, so the stand-in does it too, with
kube-apiserver's shortcuts: a number that already looks canonical is kept as it was written (`1.500` stays `1.500`).
"""

import functools
import re
from fractions import Fraction
from typing import Final

FORMAT: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
SUFFIX: Final = "unable to parse quantity's suffix"

_SPLIT: Final = re.compile(r"([+-]?)0*(\d*)(?:\.(\d*))?([eEinumkKMGTP]*[-+]?\d*)", re.ASCII)
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_SUFFIX: Final = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_BINARY_SUFFIX: Final = {exponent: suffix for suffix, exponent in _BINARY.items()}
_LARGEST_BINARY: Final = 2**63 - 1
_MILLI: Final = 1000  # resource lists are counted in thousandths


def canonical(text: object) -> str:
    """The quantity as the API server stores it. A ValueError if it cannot be read."""
    return _parse(text)[1]


def value(text: object) -> Fraction:
    """The exact amount."""
    return _parse(text)[0]


def _parse(raw: object) -> tuple[Fraction, str]:
    if isinstance(raw, bool) or not isinstance(raw, str | int | float):
        raise ValueError(FORMAT)
    return _read(str(raw))


@functools.lru_cache(maxsize=1000)  # a cluster has few different ones, and reads them all the time
def _read(text: str) -> tuple[Fraction, str]:
    if text == "0":
        return Fraction(0), "0"
    match = _SPLIT.fullmatch(text)
    if not text or match is None:
        raise ValueError(FORMAT)
    sign, whole, fraction, suffix = match.groups(default="")
    binary = suffix in _BINARY
    if binary:
        exponent, factor = _BINARY[suffix], Fraction(2 ** _BINARY[suffix])
    elif suffix in _DECIMAL:
        exponent, factor = _DECIMAL[suffix], Fraction(10) ** _DECIMAL[suffix]
    elif re.fullmatch(r"[eE][-+]?\d{1,3}", suffix):
        exponent, factor = int(suffix[1:]), Fraction(10) ** int(suffix[1:])
    else:
        raise ValueError(SUFFIX)
    digits = (whole or "0") + fraction
    amount = Fraction(int(digits), 10 ** len(fraction)) * factor
    amount = Fraction(-(-amount * _MILLI // 1), _MILLI)  # rounded up: a small amount does not become 0
    if binary:
        amount = min(amount, Fraction(_LARGEST_BINARY))
    if sign == "-":
        amount = -amount
    if _looks_canonical(digits, fraction, exponent, binary):
        return amount, text
    return amount, _write(amount, suffix, binary)


def _looks_canonical(digits: str, fraction: str, exponent: int, binary: bool) -> bool:
    """kube-apiserver keeps such numbers as they were written, if they are short enough."""
    if binary:
        return not fraction and int(digits) & 7 != 0 and len(digits) + exponent * 3 // 10 <= 14
    scale = exponent - len(fraction)
    short = len(digits) <= 18 and not digits.endswith("000") and not digits.startswith("0")
    return short and scale >= -3 and scale % 3 == 0


def _write(amount: Fraction, suffix: str, binary: bool) -> str:
    if amount == 0:
        return "0"
    if binary and abs(amount) >= 1024 and amount.denominator == 1:
        number, exponent = _divide_out(int(amount), 1024)
        return f"{number}{_BINARY_SUFFIX.get(exponent * 10, '')}"
    number, exponent = _divide_out(int(amount * _MILLI), 10)
    exponent -= 3
    number, exponent = number * 10 ** (exponent % 3), exponent - exponent % 3
    if not binary and suffix[:1] in ("e", "E") and len(suffix) > 1:
        return f"{number}e{exponent}" if exponent else str(number)
    return f"{number}{_DECIMAL_SUFFIX.get(exponent, '')}"  # beyond E kube-apiserver has no suffix and loses the amount


def _divide_out(number: int, factor: int) -> tuple[int, int]:
    times = 0
    while number % factor == 0:
        number, times = number // factor, times + 1
    return number, times
