"""The picture in docs/metrics.md is drawn from Prometheus' answers, and shows over-use as such."""

from typing import Any
from xml.etree import ElementTree

import pytest

from tools import usage_picture

MIB = usage_picture.MIB
Answers = dict[str, list[dict[str, Any]]]


def series(pod: str, **more: object) -> dict[str, Any]:
    return {"metric": {"pod": pod, "container": "main", "node": "a", "gpu": "1"}, **more}


def answers(**used: list[int]) -> Answers:
    """By pod, what it used each second; each asked for 100 MiB."""
    return {
        "granted": [series(pod, values=[[0, str(100 * MIB)]]) for pod in used],
        "used": [series(pod, values=[[at, str(m * MIB)] for at, m in enumerate(mib)]) for pod, mib in used.items()],
        "peak": [series(pod, value=[9, str(max(mib) * MIB)]) for pod, mib in used.items()],
    }


def texts(picture: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(picture).iter() if element.text]


def test_who_holds_most_idle_comes_first() -> None:
    assert [row.name for row in usage_picture.rows(answers(busy=[80, 90], idle=[5, 10], over=[90, 120]))] == [
        "idle (main)", "busy (main)", "over (main)",
    ]  # fmt: skip


def test_a_row_says_what_to_ask_for() -> None:
    said = texts(usage_picture.drawn(usage_picture.rows(answers(one=[40, 60, 45])), "a title"))
    assert {"asked for 100 MiB, peak 60", "held idle: 40 MiB", "ask for 66 MiB"} <= set(said)


@pytest.mark.parametrize(("peak", "advice"), [(900.0, 990), (3040.0, 3344), (7.0, 8)])
def test_a_tenth_more_is_not_a_little_more_than_that(peak: float, advice: int) -> None:
    assert usage_picture.Row("one", 4000, peak, []).advice == advice


def test_what_is_used_above_the_request_has_another_colour() -> None:
    picture = usage_picture.drawn(usage_picture.rows(answers(one=[90, 120])), "a title")
    assert "over-use: 20 MiB" in texts(picture)
    assert f'fill="{usage_picture.OVER}" fill-opacity' in picture
    kept = usage_picture.drawn(usage_picture.rows(answers(one=[90, 100])), "a title")
    assert f'fill="{usage_picture.OVER}" fill-opacity' not in kept


def test_a_container_of_which_nothing_is_known_has_no_row() -> None:
    found = answers(one=[90, 100])
    found["granted"].append(series("silent", values=[[0, "1"]]))
    assert [row.name for row in usage_picture.rows(found)] == ["one (main)"]


def test_the_picture_in_the_docs_is_one_of_these() -> None:
    said = texts(usage_picture.FILE.read_text("utf-8"))
    assert sum(text.startswith("ask for ") for text in said) == 3
