"""When there is colour, how wide things are, and what happens when nobody reads."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpushare.ctl.screen import Screen
from gpushare.obs.errors import UserError
from gpushare.view import wording


class Stream(io.StringIO):
    def __init__(self, *, terminal: bool, encoding: str = "utf-8") -> None:
        super().__init__()
        self._terminal, self._encoding = terminal, encoding

    def isatty(self) -> bool:
        return self._terminal

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding


@pytest.mark.parametrize(
    ("terminal", "environ", "flag", "color"),
    [
        (True, {"TERM": "xterm"}, "auto", True),
        (True, {}, "auto", True),
        (True, {"NO_COLOR": ""}, "auto", True),
        (True, {"NO_COLOR": "1"}, "auto", False),
        (True, {"TERM": "dumb"}, "auto", False),
        (False, {"TERM": "xterm"}, "auto", False),
        (False, {}, "always", True),
        (True, {"NO_COLOR": "1"}, "always", True),
        (True, {"TERM": "dumb"}, "always", True),
        (True, {}, "never", False),
    ],
)
def test_colour_is_for_terminals_that_want_it_and_the_flag_wins(
    terminal: bool, environ: dict[str, str], flag: str, color: bool
) -> None:
    screen = Screen.of(Stream(terminal=terminal), io.StringIO(), environ, flag)
    assert screen.color is color
    assert screen.terminal is terminal


@pytest.mark.parametrize(
    ("terminal", "term", "moves"), [(True, "xterm", True), (True, "dumb", False), (False, "xterm", False)]
)
def test_only_a_terminal_that_is_not_dumb_can_redraw(terminal: bool, term: str, moves: bool) -> None:
    assert Screen.of(Stream(terminal=terminal), io.StringIO(), {"TERM": term}).moves is moves


def test_a_terminal_that_does_not_say_its_size_has_the_usual_one() -> None:
    screen = Screen.of(Stream(terminal=True), io.StringIO(), {})
    assert (screen.width, screen.height) == (80, 24)
    assert not screen.resized()


def test_the_size_of_a_terminal_is_asked_again() -> None:
    screen = Screen(Stream(terminal=True), io.StringIO(), width=100, height=50)
    assert screen.resized()
    assert (screen.width, screen.height) == (80, 24)


@pytest.mark.parametrize(
    ("part", "whole", "width", "bar"),
    [
        (0, 10, 9, ""),
        (10, 10, 9, "█████████"),
        (12, 10, 9, "█████████"),  # more promised than there is: the bar ends at its end
        (-1, 10, 9, ""),
        (5, 10, 9, "████▌"),
        (1, 72, 9, "▏"),
        (1, 73, 9, ""),  # rounded down
        (71, 72, 9, "████████▉"),
        (5, 0, 9, ""),
        (5, 10, 0, ""),
    ],
)
def test_a_bar_is_used_by_total_in_eighths_rounded_down(part: int, whole: int, width: int, bar: str) -> None:
    assert Screen(io.StringIO(), io.StringIO(), color=True).bar(part, whole, width) == bar


def test_bars_are_of_hashes_where_there_is_no_utf8_and_of_nothing_without_colour() -> None:
    plain = Screen(io.StringIO(), io.StringIO(), color=True, utf8=False)
    assert plain.bar(71, 72, 9) == "########"
    assert Screen(io.StringIO(), io.StringIO()).bar(1, 1, 9) == ""


def test_a_stream_without_utf8_gets_nothing_it_cannot_write() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, "latin-1")
    screen = Screen.of(out, io.StringIO(), {})
    screen.say("no …, no ×\n")
    assert not screen.utf8
    assert raw.getvalue() == b"no ?, no ?\n"


@pytest.mark.parametrize(
    ("text", "width"), [("", 0), ("gpu-a", 5), ("größe", 5), ("显卡", 4), ("e\u0301", 1), ("ｇ", 2), ("é…", 2)]
)
def test_width_is_what_a_terminal_shows(text: str, width: int) -> None:
    assert wording.cells(text) == width


def test_while_something_is_drawn_in_place_nothing_is_said_about_waiting() -> None:
    screen = Screen(io.StringIO(), io.StringIO())
    screen.waiting("waiting for a")
    screen.quiet = True
    screen.waiting("waiting for b")
    assert isinstance(screen.err, io.StringIO)
    assert screen.err.getvalue() == "waiting for a\n"


def test_a_reader_who_goes_away_ends_the_answer_without_an_error() -> None:
    """`gpushare inspect | head -1`: the pipe is closed while we write."""
    program = (
        "import sys; from gpushare.ctl.screen import Screen; from gpushare.ctl import streams\n"
        "s = Screen.of(sys.stdout, sys.stderr, {})\n"
        "try:\n    [s.say('x' * 4096 + '\\n') for _ in range(100)]\n"
        "except streams.ReaderGone:\n    sys.exit(7)"
    )
    read, write = os.pipe()
    os.close(read)
    ended = subprocess.run(
        [sys.executable, "-c", program], stdout=write, stderr=subprocess.PIPE, timeout=60, check=False
    )
    os.close(write)
    assert (ended.returncode, ended.stderr) == (7, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_an_answer_that_cannot_be_written_is_told_in_three_lines() -> None:
    with Path("/dev/full").open("w") as full, pytest.raises(UserError) as raised:
        Screen(full, io.StringIO()).say("x\n")
    assert (raised.value.why, raised.value.code) == ("no space left on device", 2)
