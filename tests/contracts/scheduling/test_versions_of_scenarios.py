"""A scenario says which kube-schedulers can do what it expects, and in which words they say it."""

import pytest

from tests.contracts.scheduling import checks, driver
from tests.e2e.harness import versions

WORDS = {"1.19": "first", "1.24": "second", "1.34": "third"}


def test_the_newest_plays_every_scenario() -> None:
    assert all(driver.applies(scenario, versions.NEWEST.number) for scenario in driver.SCENARIOS)


def test_what_an_older_one_does_not_play_has_a_reason() -> None:
    limited = [scenario for scenario in driver.SCENARIOS if "since" in scenario]
    assert all(scenario["since"].keys() == {"version", "why"} for scenario in limited)
    (gated,) = (scenario for scenario in limited if "gate" in scenario["name"])
    assert [driver.applies(gated, (1, minor)) for minor in (9, 26, 27, 36)] == [False, False, True, True]


@pytest.mark.parametrize(("minor", "said"), [(19, "first"), (23, "first"), (24, "second"), (36, "third")])
def test_a_sentence_that_changed_is_expected_as_that_version_says_it(minor: int, said: str) -> None:
    assert checks.in_words_of((1, minor), WORDS) == said
    assert checks.in_words_of((1, minor), "always") == "always"
