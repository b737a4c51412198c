"""`random` among nodes: only those that are offered and have room, each as likely as the others."""

from collections import Counter

import msgspec

from gpushare.core.facts.model import PodFacts, Refusal
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.scheduling import ranking
from tests.support.builders import asks, facts, pod

NAMES = ["full", "one", "two", "three", "absent"]
OFFERED = ["full", "one", "two", "three"]


def cluster() -> Ledger:
    ledger = Ledger()
    for name in NAMES:
        ledger.set_node(facts(*([8, 8] if name != "full" else [2]), name=name))
    return ledger


def asking(uid: int) -> PodFacts:
    return msgspec.structs.replace(pod(4), uid=str(uid))


def first(ledger: Ledger, who: PodFacts) -> str | None:
    return ranking.first(ledger, asks(4), who, OFFERED, "random")


def test_the_node_is_any_that_is_offered_and_has_room() -> None:
    ledger = cluster()
    counts = Counter([first(ledger, asking(uid)) for uid in range(3000)])
    assert set(counts) == {"one", "two", "three"}
    assert all(900 < count < 1100 for count in counts.values())


def test_the_best_nodes_begin_with_the_first_and_none_comes_twice() -> None:
    ledger = cluster()
    for uid in range(20):
        each = asking(uid)
        best = [node for node, _ in ranking.best(ledger, asks(4), each, OFFERED, "random")]
        assert best[0] == first(ledger, each)
        assert sorted(best) == ["one", "three", "two"]


def test_the_gpu_is_any_that_has_room() -> None:
    gpus: set[int] = set()
    for uid in range(20):
        places = cluster().assume(asking(uid), "one", "random", 1.0)
        assert not isinstance(places, Refusal)
        gpus.update([gpu for share in places for gpu in share])
    assert gpus == {0, 1}
