"""kube-schedulers of the versions that people have, with what we ship for them: the scenarios, and what matters most of
what is proved with the newest.

`make e2e` runs it with the oldest, `make e2e-versions` with the others. What a version cannot do is told, not played.
"""

import functools
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from tests.contracts.scheduling import driver
from tests.e2e import test_placing, test_preemption, test_schedulers, test_waiting, test_wakeups
from tests.e2e.harness import versions
from tests.e2e.harness.figures import Figures
from tests.e2e.harness.versions import Scheduler
from tests.e2e.harness.world import World
from tests.e2e.test_scheduling import Real
from tests.support.objects import Object

Proof = Callable[[World, Figures], Coroutine[Any, Any, None]]

_three_hundred = test_placing.test_three_hundred_pods_are_placed_once_each_and_nothing_is_given_twice
PROOFS: dict[str, Proof] = {
    "300 pods by choose": functools.partial(_three_hundred, pin="direct", verb="choose", policy="binpack"),
    "300 pods by filter and prioritize": functools.partial(
        _three_hundred, pin="plugin", verb="filter", policy="binpack"
    ),
    **{
        proof.__name__.removeprefix("test_"): proof
        for proof in (
            test_wakeups.test_a_waiting_pod_is_bound_soon_after_a_release,
            test_wakeups.test_a_waiting_pod_is_bound_soon_after_a_hold_expires,
            test_wakeups.test_a_waiting_pod_is_bound_soon_after_a_gpu_becomes_healthy_as_its_node_says,
            test_wakeups.test_a_waiting_pod_is_bound_soon_after_a_node_comes_back,
            test_wakeups.test_what_a_thousand_nodes_say_against_a_pod_stays_short,
            test_waiting.test_a_pod_that_fits_nowhere_is_left_in_peace,
            test_schedulers.test_a_request_above_every_gpu_is_explained_in_the_condition_and_by_an_event,
            test_schedulers.test_a_pod_that_the_scheduler_never_asks_about_is_explained_by_our_event,
            test_preemption.test_what_an_eviction_frees_goes_to_nobody_else,
            test_preemption.test_preemption_frees_a_gpu_and_not_only_a_total,
            test_preemption.test_preemption_evicts_nobody_where_no_gpu_would_come_free,
        )
    },
}


def _marks(proof: Proof) -> list[pytest.Mark]:
    """Whether it measures is a mark of the proof itself."""
    return [mark for mark in getattr(proof, "pytestmark", ()) if mark.name == "alone"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    kinds = versions.OLDER[metafunc.config.getoption("--schedulers")]
    if "scenario" in metafunc.fixturenames:
        played = [(kind, scenario) for kind in kinds for scenario in driver.SCENARIOS if _applies(scenario, kind)]
        names = [f"{kind}-{driver.name_of(scenario)}" for kind, scenario in played]
        metafunc.parametrize(("kind", "scenario"), played, ids=names)
    else:
        metafunc.parametrize("kind", kinds, ids=str)


def _applies(scenario: Object, kind: Scheduler) -> bool:
    return driver.applies(scenario, kind.number)


@pytest.fixture
def older(world: World, kind: Scheduler) -> Iterator[World]:
    world.cluster.kind = kind
    yield world
    world.cluster.kind = versions.NEWEST


async def test_it_does_what_the_newest_does(older: World, scenario: Object) -> None:
    await driver.run(Real(older), scenario)


@pytest.mark.parametrize("name", [pytest.param(name, marks=_marks(proof)) for name, proof in PROOFS.items()])
async def test_what_is_proved_with_the_newest_holds(older: World, figures: Figures, kind: Scheduler, name: str) -> None:
    await PROOFS[name](older, figures.of(str(kind)))


def test_what_is_not_played_is_told_with_its_reason(kind: Scheduler, figures: Figures) -> None:
    left_out = [scenario for scenario in driver.SCENARIOS if not _applies(scenario, kind)]
    assert len(left_out) < len(driver.SCENARIOS) / 10, "what is shipped for it is to be tried"
    told = "".join(f"; not: {driver.name_of(one)} ({one['since']['why']})" for one in left_out)
    figures.of(str(kind)).say("scenarios", f"{len(driver.SCENARIOS) - len(left_out)} of {len(driver.SCENARIOS)}{told}")
