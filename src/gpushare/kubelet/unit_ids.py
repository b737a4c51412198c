"""Device ids: the name of each unit of GPU memory, and which units a list of names means.

Pure. kubelet remembers running pods by these ids, so they depend only on the GPU's uuid, the unit (MiB or GiB) and the
unit's number: three characters of a hash and four of the number, in base 36. An id from a time when the node counted in
the other unit is never one of ours.

kubelet names up to 200,000 ids in one request and does nothing else on the node meanwhile. All ids have seven
characters, so they are read by columns: seven slices of one message instead of 200,000 small strings.
"""

import hashlib
from array import array
from collections.abc import Iterable, Mapping
from itertools import compress, islice, product
from typing import Final, NamedTuple

from gpushare.core.facts.model import Gpu, Unit

DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
KEY, NUMBER = 3, 4  # characters
LENGTH: Final = KEY + NUMBER
WINDOWS: Final = 16  # keys that one hash gives
STRANGE: Final = 255
_VALUES: Final = bytes([DIGITS.find(chr(code)) & 0xFF for code in range(256)])  # a digit's value; 255: no digit
_IS: Final = {ord(digit): bytes([chr(code) == digit for code in range(256)]) for digit in DIGITS}
_IS_DIGIT: Final = bytes([value != STRANGE for value in _VALUES])

Units = dict[str, int]
"""By GPU (uuid): a number with one bit set for each unit."""


class Ids(NamedTuple):
    """Many ids: those of our length by columns (all first characters, all second ones, …), and the others."""

    columns: tuple[bytes, ...]
    others: tuple[str, ...] = ()

    @property
    def many(self) -> int:
        return len(self.columns[0]) + len(self.others)

    @staticmethod
    def of(ids: Iterable[str]) -> "Ids":
        regular: list[str] = []
        others: list[str] = []
        for name in ids:
            (regular if len(name) == LENGTH and name.isascii() else others).append(name)
        together = "".join(regular).encode()
        return Ids(tuple([together[column::LENGTH] for column in range(LENGTH)]), tuple(others))

    def texts(self) -> list[str]:
        """As strings, one by one."""
        rows = [bytes(row).decode("utf-8", "replace") for row in zip(*self.columns, strict=True)]
        return [*rows, *self.others]


def keys(uuids: Iterable[str], unit: Unit, known: Mapping[str, str]) -> dict[str, str]:
    """The first characters of the ids of each GPU. If the hashes of two GPUs begin alike, the larger uuid takes the
    next characters of its hash. Known keys never change, also when the other GPU is lost."""
    given = dict(known)
    for uuid in sorted(uuids):
        if uuid not in given:
            taken = set(given.values())
            given[uuid] = next(key for key in _windows(uuid, unit) if key not in taken)
    return given


def _windows(uuid: str, unit: Unit) -> list[str]:
    number = int.from_bytes(hashlib.sha256(f"{unit} {uuid}".encode()).digest())
    text = ""
    for _ in range(KEY * WINDOWS):
        number, digit = divmod(number, 36)
        text += DIGITS[digit]
    return [text[at : at + KEY] for at in range(0, len(text), KEY)]


def numbers(count: int) -> str:
    """The last four characters of the ids of units 0, 1, …, one after the other."""
    return "".join(map("".join, islice(product(DIGITS, repeat=NUMBER), count)))


class Reader:
    """One list of ids, read GPU by GPU when its units are asked for."""

    def __init__(self, ids: Ids, keys: Mapping[str, str]) -> None:
        self.ids = ids
        self._keys = keys
        self._numbers: array[int] | None = None
        self._sound: int | None = None

    def units(self, uuid: str, total: int) -> int:
        """The units of that GPU among the ids. A name twice is one unit, a number past its last unit is none."""
        chosen = self._of_gpu(uuid)
        if not chosen:
            return 0
        if self._numbers is None:
            self._numbers = _read_numbers(self.ids.columns[KEY:])
        places = bytearray(b"0") * total
        marks = chosen.to_bytes(len(self.ids.columns[0]), "little")
        for number in compress(self._numbers, marks):
            if number < total:
                places[~number] = 49  # "1", where a binary number has it
        return int(places or b"0", 2)

    def all(self, totals: Mapping[str, int]) -> Units:
        """All units of all GPUs."""
        read = {uuid: self.units(uuid, total) for uuid, total in totals.items()}
        return {uuid: units for uuid, units in read.items() if units}

    def unknown(self, totals: Mapping[str, int]) -> list[str]:
        """The ids that are not units of these GPUs. Slow: only for messages, and for ids of other plugins."""
        total_of = {self._keys[uuid]: total for uuid, total in totals.items()}
        return [name for name in self.ids.texts() if not _names_unit(name, total_of)]

    def _of_gpu(self, uuid: str) -> int:
        """One bit in eight for each id that begins with the GPU's key and ends with a number."""
        if self._sound is None:
            self._sound = _all_true([column.translate(_IS_DIGIT) for column in self.ids.columns[KEY:]])
        letters = list(zip(self.ids.columns[:KEY], self._keys[uuid].encode(), strict=True))
        if any(letter not in column for column, letter in letters):
            return 0  # usually all ids are of one GPU: for the others this check is enough
        return _all_true([column.translate(_IS[letter]) for column, letter in letters]) & self._sound


def _all_true(columns: list[bytes]) -> int:
    result = int.from_bytes(columns[0], "little")
    for column in columns[1:]:
        result &= int.from_bytes(column, "little")
    return result


def _read_numbers(columns: tuple[bytes, ...]) -> "array[int]":
    """Reads base 36 for all rows at once: each row is 32 bits of one long number, and no row overflows into the
    next."""
    count, total = len(columns[0]), 0
    for column in columns:
        lanes = bytearray(4 * count)
        lanes[::4] = column.translate(_VALUES)
        total = total * 36 + int.from_bytes(lanes, "little")
    read = array("I")
    read.frombytes(total.to_bytes(4 * count, "little"))
    return read


def _names_unit(name: str, total_of: Mapping[str, int]) -> bool:
    total = total_of.get(name[:KEY]) if len(name) == LENGTH else None
    if total is None or not set(name[KEY:]) <= set(DIGITS):
        return False
    return int(name[KEY:], 36) < total


def lowest(units: int, count: int) -> int:
    """The first `count` of these units."""
    low, high = 0, units.bit_length()
    while low < high:
        middle = (low + high) // 2
        if (units & ((1 << middle) - 1)).bit_count() < count:
            low = middle + 1
        else:
            high = middle
    return units & ((1 << low) - 1)


def names(key: str, units: int, numbered: str) -> list[str]:
    """The ids of units. `numbered`: `numbers` of at least as many."""
    return [key + numbered[at : at + NUMBER] for at in compress(range(0, len(numbered), NUMBER), flags(units))]


def flags(units: int) -> bytes:
    """One byte, 1 or 0, for each unit up to the last one."""
    return bin(units)[:1:-1].encode().translate(_IS[ord("1")])


class Catalog:
    """The ids of this node's units. The key of a GPU stays, also when the GPU is lost."""

    def __init__(self, unit: Unit) -> None:
        self.keys: dict[str, str] = {}
        self.totals: dict[str, int] = {}
        self.numbered = ""
        self._unit = unit

    def count_in(self, unit: Unit) -> None:
        """From now on the node counts in another unit, so all ids change."""
        self._unit, self.keys = unit, {}

    def know(self, gpus: Iterable[Gpu]) -> None:
        self.totals = {gpu.uuid: gpu.total for gpu in gpus}
        self.keys = keys(self.totals, self._unit, self.keys)
        self.numbered = numbers(max(self.totals.values(), default=0))

    def recall(self, used: Iterable[str]) -> None:
        """At the start, the ids that kubelet has for running pods: a GPU keeps the key it had, even if the GPU with the
        same first key is lost by now."""
        used_keys = {name[:KEY] for name in used if len(name) == LENGTH}
        for uuid, key in list(self.keys.items()):
            if key not in used_keys:
                free = used_keys - set(self.keys.values())
                self.keys[uuid] = next((other for other in _windows(uuid, self._unit) if other in free), key)

    def reader(self, ids: Ids) -> Reader:
        return Reader(ids, self.keys)

    def names(self, units: Units) -> list[str]:
        return [name for uuid, bits in units.items() for name in names(self.keys[uuid], bits, self.numbered)]
