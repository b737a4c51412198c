"""Lists of whole numbers out of an .npz file: a zip of .npy files, each a short header and then the numbers.

Only this much of the format is needed, so nothing has to be installed for it.
"""

import io
import lzma
import re
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Final

from gpushare.obs.errors import UserError
from gpushare.sim.reading.files import unreadable

MOST_BYTES: Final = 64 << 20  # of the file, and of one list
MAGIC: Final = b"\x93NUMPY"
ENDIANS: Final = {"<": "<", ">": ">", "|": "<", "=": "<"}
HEADER: Final = re.compile(
    r"\{'descr': '([<>|=])([iu][1248])', 'fortran_order': (?:True|False), 'shape': \(([0-9]{1,9}),\), \}\s*"
)  # as numpy writes it
LETTERS: Final = {"i1": "b", "u1": "B", "i2": "h", "u2": "H", "i4": "i", "u4": "I", "i8": "q", "u8": "Q"}
WAY: Final = "name an .npz file with lists of whole numbers"


class Lists:
    """The lists of a file, by name."""

    def __init__(self, file: str) -> None:
        self._file = file
        try:
            with Path(file).open("rb") as opened:
                data = opened.read(MOST_BYTES + 1)  # zipfile would read a device without an end for ever
        except OSError as error:
            raise unreadable(file, error) from None
        if len(data) > MOST_BYTES:
            raise UserError(f"{file} is too large", f"it is larger than {MOST_BYTES >> 20} MiB", WAY)
        self._data = io.BytesIO(data)
        try:
            with zipfile.ZipFile(self._data) as archive:
                self.names = frozenset([name.removesuffix(".npy") for name in archive.namelist()])
        except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile):
            raise UserError(f"{file} is not an .npz file", "it is not a zip of lists, or cut off", WAY) from None

    def read(self, name: str) -> tuple[int, ...]:
        try:
            with zipfile.ZipFile(self._data) as archive, archive.open(f"{name}.npy") as member:
                data = member.read(MOST_BYTES + 1)
        except (OSError, KeyError, ValueError, RuntimeError, EOFError, zipfile.BadZipFile, zlib.error, lzma.LZMAError):
            raise self._fault(name, "it cannot be unpacked; is the file cut off?") from None
        if len(data) > MOST_BYTES:
            raise self._fault(name, f"it is larger than {MOST_BYTES >> 20} MiB")
        try:
            return _numbers(data)
        except (ValueError, IndexError, struct.error):
            raise self._fault(name, "it is not a list of whole numbers") from None

    def _fault(self, name: str, why: str) -> UserError:
        return UserError(f"{self._file}: {name} cannot be read", why, WAY)


def _numbers(data: bytes) -> tuple[int, ...]:
    if data[:6] != MAGIC:
        raise ValueError
    long = data[6] > 1
    (size,) = struct.unpack_from("<I" if long else "<H", data, 8)
    begin = (12 if long else 10) + size
    described = HEADER.fullmatch(data[begin - size : begin].decode("latin-1"))
    if described is None:
        raise ValueError
    endian, letter, count = described.groups()
    form = f"{ENDIANS[endian]}{count}{LETTERS[letter]}"
    if struct.calcsize(form) != len(data) - begin:
        raise ValueError
    return struct.unpack_from(form, data, begin)
