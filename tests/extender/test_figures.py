"""What the extender says of the whole cluster in its metrics."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from gpushare.core.explain.figures import Figures, Size
from gpushare.core.explain.waiting import Waiting
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.scheduling.life import Life
from gpushare.extender.background import cluster_figures
from gpushare.extender.background.cluster_figures import ClusterFigures
from gpushare.extender.metrics import Metrics
from gpushare.obs import metrics
from tests.support import wait
from tests.support.builders import facts, ledger, pod


def shown(registry: CollectorRegistry) -> list[str]:
    """Lines of the page about the cluster."""
    words = ("gpushare_waiting", "gpushare_oldest", "gpushare_fitting", "gpushare_unusable", "gpushare_unplaced")
    return [line for line in metrics.exposition(registry)[0].decode().splitlines() if line.startswith(words)]


def test_what_was_found_is_printed() -> None:
    made = Metrics(Ledger())
    found = Figures({"p90": Size(3, 0.25), "whole": Size(0, None)}, 2), {"NoSingleGpu": Waiting(4, 1000.0)}
    made.look(lambda: found, lambda: 1042.5)
    assert shown(made.registry) == [
        'gpushare_waiting_pods{code="NoSingleGpu"} 4.0',
        'gpushare_oldest_waiting_seconds{code="NoSingleGpu"} 42.5',
        'gpushare_fitting_pods{size="p90"} 3.0',
        'gpushare_fitting_pods{size="whole"} 0.0',
        'gpushare_unusable_free_ratio{size="p90"} 0.25',
        "gpushare_unplaced_pods 2.0",
    ]


def test_before_the_first_look_nothing_is_claimed() -> None:
    made = Metrics(Ledger())
    made.look(lambda: None)
    assert shown(made.registry) == []


async def test_a_look_finds_nodes_and_waiting_pods() -> None:
    life = Life(ledger(facts(2048, 1024)), policy="binpack")
    life.observe(pod(1500, unschedulable="0/1 nodes"), 0.0)
    life.observe(pod(4000, unschedulable="0/1 nodes"), 0.0)
    cluster = ClusterFigures(life)
    assert cluster.last is None
    await cluster.look()
    assert cluster.last is not None
    figures, waiting = cluster.last
    assert figures.sizes["1GiB"] == Size(3, 0.0)
    assert {code: group.pods for code, group in waiting.items()} == {"Fits": 1, "TooLarge": 1}


async def test_a_look_that_fails_claims_nothing_and_the_next_one_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_figures, "SECONDS", 0.0)
    cluster, found, fails = ClusterFigures(Life(ledger(facts(2048)), policy="binpack")), Figures({}, 0), True

    async def look() -> None:
        if fails:
            raise ZeroDivisionError
        cluster.last = found, {}

    monkeypatch.setattr(cluster, "look", look)
    cluster.last = found, {}
    running = asyncio.create_task(cluster.run(lambda: ""))
    await wait.eventually(lambda: cluster.last is None, "nothing")
    fails = False
    await wait.eventually(lambda: cluster.last == (found, {}), "the next look")
    running.cancel()
