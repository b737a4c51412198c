"""Every scenario in this folder, each as a test of its own name."""

from functools import cache
from pathlib import Path

import pytest

from tests.scenarios import driver
from tests.support import yaml_text
from tests.support.objects import Object

FOLDER = Path(__file__).parent


@cache
def scenarios() -> list[Object]:
    """Each file holds one, or several with `---` between them."""
    return [found for file in sorted(FOLDER.glob("*.yaml")) for found in yaml_text.documents(file.read_text())]


def _parameter(scenario: Object) -> object:
    marks = [pytest.mark.xfail(reason=scenario["broken"], strict=True)] if "broken" in scenario else []
    return pytest.param(scenario, id=scenario["name"], marks=marks)


@pytest.mark.parametrize("scenario", [_parameter(scenario) for scenario in scenarios()])
def test_scenario(scenario: Object) -> None:
    driver.run(scenario)


def test_every_scenario_has_a_name_of_its_own() -> None:
    given = [scenario["name"] for scenario in scenarios()]
    assert len(given) == len(set(given))
