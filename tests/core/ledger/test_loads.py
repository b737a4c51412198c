"""What is known of a GPU when points are given: measured, promised, and placed since the last sample."""

from typing import Any

from gpushare.core.facts.scoring.load import GpuLoad
from gpushare.core.facts.vitals import GpuVitals
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.ledger.loads import Measured
from tests.support import builders
from tests.support.builders import bound, facts, pod

NODE = facts(8000, 8000, slots=4)
UUIDS = tuple(gpu.uuid for gpu in NODE.gpus)


def measured(at: float, **figures: Any) -> Measured:
    return Measured(at, {uuid: GpuVitals(uuid=uuid, used_mib=1000, utilization=10, **figures) for uuid in UUIDS})


def load(ledger: Ledger, gpu: int = 0) -> GpuLoad:
    return builders.node_state(ledger, "n").loads()[gpu]


def test_a_pod_counts_as_using_all_it_was_given_until_it_is_measured() -> None:
    ledger = builders.ledger(NODE)
    ledger.measure("n", measured(100.0))
    waiting = pod(2000)
    ledger.assume(waiting, "n", "binpack", 101.0)
    assert (load(ledger).used, load(ledger).utilization) == (3000, 35.0)
    ledger.reserve(waiting, "n", "binpack")
    ledger.confirm(bound(waiting, NODE, ((0,),)))
    ledger.observe(bound(waiting, NODE, ((0,),)), 102.0)
    assert (load(ledger).used, load(ledger).granted, load(ledger).pods) == (3000, 2000, 1)
    ledger.measure("n", measured(103.0))
    assert (load(ledger).used, load(ledger).granted, load(ledger).pods) == (1000, 2000, 1)


def test_a_pod_that_is_bound_without_an_assumption_counts_from_then_on() -> None:
    ledger = builders.ledger(NODE)
    ledger.measure("n", measured(100.0))
    ledger.expire(105.0)
    ledger.reserve(pod(2000), "n", "binpack")
    assert load(ledger).used == 3000


def test_a_pod_that_was_there_before_us_was_measured() -> None:
    ledger = builders.ledger(NODE)
    ledger.expire(90.0)
    ledger.observe(bound(pod(2000), NODE, ((0,),)), 90.0)
    ledger.measure("n", measured(80.0))
    assert load(ledger).used == 1000


def test_without_a_sample_use_is_unknown_but_promises_are_known() -> None:
    ledger = builders.ledger(NODE)
    ledger.assume(pod(mps=1, slot_memory="500Mi"), "n", "binpack", 1.0)
    assert load(ledger) == GpuLoad(8000, 500, 1, 4)
    ledger.measure("n", measured(2.0))
    ledger.measure("n", None)
    assert load(ledger) == GpuLoad(8000, 500, 1, 4)


def test_a_sample_that_comes_before_its_node_counts_when_the_node_comes() -> None:
    ledger = Ledger()
    ledger.measure("n", measured(1.0))
    ledger.set_node(NODE)
    assert load(ledger).used == 1000


def test_a_sample_says_nothing_about_gpus_it_does_not_name() -> None:
    ledger = builders.ledger(NODE)
    ledger.measure("n", Measured(1.0, {UUIDS[1]: GpuVitals(uuid=UUIDS[1], used_mib=7)}))
    assert (load(ledger, 0).used, load(ledger, 1).used) == (None, 7)


def test_over_use_is_known_only_where_use_is() -> None:
    ledger = builders.ledger(NODE)
    assert load(ledger).over_used is None
    ledger.measure("n", measured(1.0))
    assert load(ledger).over_used is False
    ledger.measure("n", measured(1.0, over_users=("uid-greedy",)))
    assert load(ledger).over_used is True
    ledger.measure("n", Measured(1.0, measured(1.0).gpus, attributed=False))
    assert (load(ledger).over_used, load(ledger).used) == (None, 1000)


def test_amounts_of_a_node_that_counts_in_gib_are_mib() -> None:
    ledger = builders.ledger(facts(8, unit="GiB"))
    ledger.assume(pod(2), "n", "binpack", 1.0)
    assert (load(ledger).total, load(ledger).granted) == (8192, 2048)
