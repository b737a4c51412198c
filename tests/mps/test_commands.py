"""What the control program is told, and how its answers are read."""

import pytest

from gpushare.mps import commands
from gpushare.mps.commands import Sizes


def test_gpus_are_divided_by_default_and_on_every_server_that_runs() -> None:
    sizes = Sizes(4, ((0, 16276), (1, 40536)))
    assert commands.divide(sizes) == [
        "set_default_device_pinned_mem_limit 0 4069M",
        "set_default_device_pinned_mem_limit 1 10134M",
        "set_default_active_thread_percentage 25",
    ]
    assert commands.divide_server(sizes, 4711) == [
        "set_device_pinned_mem_limit 4711 0 4069M",
        "set_device_pinned_mem_limit 4711 1 10134M",
        "set_active_thread_percentage 4711 25",
    ]


@pytest.mark.parametrize(
    ("answer", "pids"),
    [("", []), ("\n", []), ("4711\n4712\n", [4711, 4712]), ("certainly", None), ("-1", None), ("9" * 30, None)],
)
def test_a_list_of_servers_is_numbers_and_nothing_else(answer: str, pids: list[int] | None) -> None:
    assert commands.numbers(answer) == pids


@pytest.mark.parametrize(
    ("answer", "percent"), [("100.0\n", 100.0), ("25", 25.0), ("", None), ("x", None), ("1.2.3", None), ("-5", None)]
)
def test_a_percentage_is_a_number(answer: str, percent: float | None) -> None:
    assert commands.percentage(answer) == percent


def test_words_of_the_program_are_short_in_a_sentence_of_ours() -> None:
    assert commands.in_words("first\nCannot find MPS control daemon process\n\n") == (
        "Cannot find MPS control daemon process"
    )
    assert len(commands.in_words("x" * 500)) == commands.LONGEST_WORDS
    assert commands.in_words("\x1b[31mred") == "[31mred"
    assert commands.in_words("") == ""


def test_lines_about_our_own_questions_are_not_told() -> None:
    told = [
        line
        for line in (
            "[2026-11-17 06:04:59.415 Control    72] NEW UI",
            "[2026-11-17 06:04:59.415 Control    72] Cmd:get_server_list",
            "[2026-11-17 06:04:59.415 Control    72] UI closed",
            "[2026-11-17 06:04:59.418 Control    72] NEW CLIENT 17 from user 0: Server is not ready",
            "",
        )
        if commands.worth_telling(line)
    ]
    assert told == ["[2026-11-17 06:04:59.418 Control    72] NEW CLIENT 17 from user 0: Server is not ready"]


@pytest.mark.parametrize(
    ("driver", "old"), [("470.82.01", True), ("495.29", False), ("550.54.14", False), ("x", False)]
)
def test_a_driver_before_memory_limits_is_too_old(driver: str, old: bool) -> None:
    assert commands.is_too_old(driver, 495) is old
