"""What several runs of pytest say is told as if it were one run."""

import pytest

from tools import pytest_output


@pytest.mark.parametrize(
    ("closings", "told"),
    [
        (["434 passed in 2210.32s (0:36:50)"], "434 passed in 2210.32s (0:36:50)"),
        (["417 passed, 17 deselected in 1000.50s (0:16:40)", "17 passed, 417 deselected in 300.25s (0:05:00)"],
         "434 passed in 1300.75s (0:21:40)"),
        (["1 failed, 5 passed, 1 error in 3.00s", "2 failed, 4 passed, 2 warnings, 1 error in 4.00s"],
         "3 failed, 9 passed, 2 errors, 2 warnings in 7.00s"),
        (["==== 1 passed, 1 skipped in 2.00s ====", "no closing line: it was killed"], "1 passed, 1 skipped in 2.00s"),
        (["killed", ""], ""),
    ],
)  # fmt: skip
def test_closing_lines_are_added_up_in_pytests_own_form(closings: list[str], told: str) -> None:
    assert pytest_output.closing(*(f"a test said: 3 passed in 1.00s\n{line}\n" for line in closings if line)) == told


def test_a_total_counts_tests_and_not_warnings() -> None:
    assert pytest_output.total("1 failed, 1202 passed, 3 warnings, 1 error in 38.20s") == 1204


def test_failed_tests_of_all_runs_are_found_in_their_summaries_only() -> None:
    first = "FAILED as a test printed\n== short test summary info ==\nFAILED a.py::test_x[no file] - assert 1\n"
    second = "== short test summary info ==\nERROR b.py - OSError: gone - really\n"
    assert pytest_output.failed(first, second) == ["a.py::test_x[no file]", "b.py"]


def test_what_was_measured_ends_where_the_next_section_begins() -> None:
    first = "== measured ==\n  placed: 300\n    of them late: 0\n== slowest 20 durations ==\n  1s call a\n"
    assert pytest_output.measured(first, "nothing", "= measured =\n  rate: 1\n1 passed in 2.00s\n") == (
        "  placed: 300\n    of them late: 0\n  rate: 1\n"
    )


@pytest.mark.parametrize(
    ("test", "selects"),
    [
        ("tests/a.py::test_two_binds_never_get_the_same_memory", "-k two_binds"),
        ("tests/a.py::test_a_pod_that_waits_is_told_why", "-k a_pod_that"),
        ("tests/a.py::test_a_token_is_read_again[no file]", "-k a_token_is"),
        ("tests/a.py::TestX::test_or", "-k test_or"),
        ("tests/a.py::test_it_runs", "-k it_runs"),
        ("tests/a.py", "tests/a.py"),
    ],
)
def test_the_hint_selects_the_failed_test_in_few_words(test: str, selects: str) -> None:
    assert pytest_output.selection(test) == selects
