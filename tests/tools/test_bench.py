"""Budgets of `make bench` mean the same on a slow machine: times are judged in the time of a reference machine."""

import json
from statistics import fmean

import pytest

from bench import yardstick
from bench.result import HEADER, Result
from bench.yardstick import Yardstick

TWICE = [2.0, 2.5, 3.0]  # looks at the yardstick on a machine that is at best half as fast as the reference


def test_a_time_is_judged_as_if_the_machine_were_the_reference() -> None:
    result = Result("filter", 1.8, "ms", 1.0).measured_with(TWICE)
    assert result.reference == pytest.approx(0.9)
    assert result.ok


def test_a_fast_machine_does_not_hide_that_a_budget_is_missed() -> None:
    assert not Result("filter", 0.8, "ms", 1.0).measured_with([0.5]).ok


def test_a_figure_that_is_a_mean_is_compared_with_the_mean_of_the_looks() -> None:
    assert Result("over HTTP", 5.0, "ms", 2.0, of=fmean).measured_with(TWICE).reference == pytest.approx(2.0)


@pytest.mark.parametrize("unit", ["MB", "times", "x", "points", "%"])
def test_what_is_no_time_is_judged_as_it_is(unit: str) -> None:
    result = Result("something", 1.5, unit, 1.0).measured_with(TWICE)
    assert result.reference == 1.5
    assert not result.ok


def test_both_values_are_shown() -> None:
    result = Result("filter", 1.8, "ms", 1.0).measured_with(TWICE)
    assert result.as_row().split() == ["filter", "1.800", "ms", "0.900", "<=", "1", "ms", "ok"]
    assert HEADER.split() == ["name", "value", "reference", "budget", "ok"]
    shown = json.loads(result.as_json())
    assert shown == {"name": "filter", "value": 1.8, "reference": 0.9, "unit": "ms", "budget": 1.0, "ok": True}


def test_figures_of_the_same_rounds_are_compared_with_the_same_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([1.0, 2.0])
    monkeypatch.setattr(yardstick, "measure", lambda: next(looks))
    monkeypatch.setattr(yardstick, "EVERY", 0.0)
    machine = Yardstick()
    machine.look()
    assert machine.take() == [1.0]
    assert machine.take() == [1.0]
    machine.look()
    assert machine.take() == [2.0]
