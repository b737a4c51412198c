"""Rows of a CSV file with a header: the columns that are needed, and numbers out of their text. Pure."""

import csv
import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from gpushare.obs.errors import UserError

MOST_DIGITS = 15
MOST_WORDS = 300  # characters of a reason: names and numbers of a file may be of any length

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")  # other separators, as Unicode has them, may be in a name


class Row(NamedTuple):
    """`number` is that of its line in the file: the header is row 1."""

    file: str
    number: int
    cells: dict[str, str]

    def whole(self, column: str) -> int:
        """A number that is not negative and has no fraction; 0 if the cell is empty or there is no such column."""
        text = self.cells.get(column, "").strip()
        if text and not (text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS):
            raise self.fault(f'{column} is "{text:.30}"', f"write a whole number for {column}, 0 or more")
        return int(text or 0)

    def needed(self, column: str) -> int:
        """The same, but it must be there."""
        if not self.cells.get(column, "").strip():
            raise self.fault(f"{column} is empty", f"write a whole number for {column}, 0 or more")
        return self.whole(column)

    def seconds(self, column: str) -> float | None:
        text = self.cells.get(column, "").strip()
        plain = text.replace(".", "", 1)
        if text and not (plain.isascii() and plain.isdecimal() and len(plain) <= MOST_DIGITS):
            raise self.fault(f'{column} is "{text:.30}"', f"write seconds for {column}, 0 or more")
        return float(text) if text else None

    def listed(self, column: str) -> tuple[str, ...]:
        """The parts of a list with bars."""
        return tuple([part.strip() for part in self.cells.get(column, "").split("|") if part.strip()])

    def name(self, column: str) -> str:
        name = self.cells[column].strip()
        if not name:
            raise self.fault(f"{column} is empty", "give each row a name")
        return name

    def fault(self, why: str, way: str) -> UserError:
        return fault(self.file, f"row {self.number}", why, way)


def fault(file: str, place: str, why: str, way: str) -> UserError:
    """What is wrong with one row or entry."""
    return UserError(f"{file}, {place}: it cannot be replayed", why[:MOST_WORDS], way)


def header(text: str) -> list[str]:
    """The names of the columns of a file."""
    return [name.strip(' "\r') for name in text.partition("\n")[0].split(",")]


def rows(file: str, text: str, needed: Collection[str]) -> Iterator[Row]:
    reader = csv.reader((line[0] for line in _LINE.finditer(text)), strict=True)
    columns: Sequence[str] = ()
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            place = f"row {reader.line_num}"
            raise fault(file, place, f"it is not CSV: {error}", "is the file cut off? Get it again") from None
        if cells is None:
            return
        if not columns:
            columns = _columns(file, [cell.strip() for cell in cells], needed)
        elif cells:
            if len(cells) != len(columns):
                why = f"it has {len(cells)} of {len(columns)} columns"
                raise fault(file, f"row {reader.line_num}", why, "is the file cut off? Get it again")
            yield Row(file, reader.line_num, dict(zip(columns, cells, strict=True)))


def _columns(file: str, columns: list[str], needed: Collection[str]) -> list[str]:
    for column in needed:
        if column not in columns:
            why = f"row 1 has the columns {', '.join(columns)[:200] or '(none)'}"
            raise UserError(f"{file} has no column {column}", why, f"the columns needed are {', '.join(needed)}")
    if len(set(columns)) < len(columns):
        twice = next(column for column in columns if columns.count(column) > 1)
        raise UserError(f"{file} has two columns {twice}", "which of them counts?", "leave one of them out")
    return columns
