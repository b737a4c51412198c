"""The stand-in for kube-scheduler plays `tests/contracts/scheduling`; in `make e2e` kube-scheduler does."""

import pytest

from gpushare.devcluster.scheduler.extenders import Settings
from tests.contracts.scheduling import driver, embedded
from tests.e2e.harness import shipped
from tests.support.objects import Object


@pytest.mark.parametrize("filter_verb", ["choose", "filter"])
@pytest.mark.parametrize("scenario", driver.SCENARIOS, ids=driver.name_of)
async def test_it_schedules_as_kube_scheduler_does(scenario: Object, filter_verb: str) -> None:
    async with embedded.running() as under_test:
        under_test.filter_verb = filter_verb
        await driver.run(under_test, scenario)


def test_it_asks_the_extender_as_the_scheduler_we_configure() -> None:
    (configuration,) = shipped.documents("scheduler/config-v1.yaml")
    (entry,) = configuration["extenders"]
    assert Settings(entry["urlPrefix"]) == Settings(
        entry["urlPrefix"],
        entry["filterVerb"],
        entry["weight"],
        float(entry["httpTimeout"].removesuffix("s")),
        frozenset(resource["name"] for resource in entry["managedResources"]),
    )
