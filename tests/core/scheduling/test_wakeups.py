"""Whom to wake: those who can come, in order, without waiting for those who cannot."""

import pytest

from gpushare.core.facts.kinds import MEMORY
from gpushare.core.facts.model import Gpu, NodeFacts, Pin, PodFacts, Request, Role, Rules, Share
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.placement.cost import Budget
from gpushare.core.scheduling.wakeups import OFFER_SECONDS, WakeUps

ELSEWHERE = Rules(selector=(("disk", "ssd"),))


def pod(name: str, units: int = 8000, created: int = 0, priority: int = 0, rules: Rules | None = None) -> PodFacts:
    request = Request((Share("main", 0, Role.APP, MEMORY, units),), Pin.PLUGIN)
    age = f"2026-01-01T00:{created // 60:02}:{created % 60:02}Z"
    return PodFacts(name, "team", name, request, created=age, priority=priority, unschedulable="x", rules=rules)


def node(name: str, *gpus: int, healthy: bool = True) -> NodeFacts:
    return NodeFacts(
        name, "MiB", Pin.PLUGIN, tuple(Gpu(i, f"{name}-{i}", size, healthy) for i, size in enumerate(gpus))
    )


def recovered(*names: str, gpus: tuple[int, ...] = (8000,)) -> Ledger:
    """Nodes whose GPUs have just become healthy again."""
    ledger = Ledger()
    for name in names:
        ledger.set_node(node(name, *gpus, healthy=False))
    ledger.take_grown()
    for name in names:
        ledger.set_node(node(name, *gpus))
    return ledger


def woken(waiting: WakeUps, ledger: Ledger, now: float = 0.0) -> list[str]:
    due = waiting.due(ledger, now)
    for found in due:
        waiting.touched(found.uid, now)
    return [found.name for found in due]


@pytest.mark.parametrize("older", [1, 20])
def test_pods_that_the_node_is_closed_to_delay_nobody(older: int) -> None:
    waiting = WakeUps(lambda asked, where: asked.rules is None)
    for i in range(older):
        waiting.refuse(pod(f"barred-{i}", created=i, rules=ELSEWHERE))
    waiting.refuse(pod("good", created=1000))
    assert woken(waiting, recovered("n")) == ["good"]


def test_pods_that_were_not_offered_the_node_come_after_those_who_were() -> None:
    waiting = WakeUps()
    waiting.refuse(pod("elsewhere", created=0), ["other"])
    waiting.refuse(pod("offered", created=1), ["n", "other"])
    assert woken(waiting, recovered("n")) == ["offered"]


def test_pods_that_were_not_offered_the_node_are_woken_for_what_is_left() -> None:
    """A scheduler may offer a sample of the nodes only, and what kept it off may have changed."""
    waiting = WakeUps()
    waiting.refuse(pod("elsewhere", created=0), ["other"])
    waiting.refuse(pod("offered", created=1), ["n", "other"])
    assert woken(waiting, recovered("n", gpus=(8000, 8000))) == ["offered", "elsewhere"]


def test_everybody_who_fits_beside_the_others_is_woken_at_once() -> None:
    waiting = WakeUps()
    for i in range(10):
        waiting.refuse(pod(f"p{i}", 3000, created=i))
    assert woken(waiting, recovered("n", gpus=(8000, 8000))) == ["p0", "p1", "p2", "p3"]


def test_an_offer_that_nobody_answers_goes_on_within_a_second() -> None:
    """Twenty that never come, and whom nothing tells apart from the others, cost a second each and no more."""
    waiting, ledger = WakeUps(), recovered("n")
    for i in range(5):
        waiting.refuse(pod(f"p{i}", created=i))
    times = {}
    for tick in range(120):
        for name in woken(waiting, ledger, tick * 0.05):
            times[name] = tick * 0.05
    assert list(times) == [f"p{i}" for i in range(5)]
    gaps = [times[f"p{i + 1}"] - times[f"p{i}"] for i in range(4)]
    assert max(gaps) <= OFFER_SECONDS + 0.11


def test_a_pod_is_woken_once_for_a_refusal() -> None:
    waiting, ledger = WakeUps(), recovered("n")
    waiting.refuse(pod("one"))
    assert woken(waiting, ledger) == ["one"]
    assert [woken(waiting, ledger, now) for now in (0.5, 1.5, 60.0)] == [[], [], []]


def test_a_pod_whose_touch_fails_is_woken_later_however_long_that_takes() -> None:
    waiting, ledger = WakeUps(), recovered("n")
    waiting.refuse(pod("one"))
    assert [found.name for found in waiting.due(ledger, 0.0)] == ["one"]
    assert waiting.due(ledger, 30.0) == []
    waiting.failed_to_wake("one")
    assert woken(waiting, ledger, 31.0) == ["one"]


def test_a_turn_that_ran_out_of_time_is_gone_on_with() -> None:
    waiting, ledger = WakeUps(), recovered("n", gpus=(8000,) * 8)
    for i in range(500):
        waiting.refuse(pod(f"large-{i:03}", 9000 + i, created=0))
    for i in range(8):
        waiting.refuse(pod(f"fits-{i}", created=1 + i))
    turns = [[found.name for found in waiting.due(ledger, 0.0, Budget(100))] for _ in range(30)]
    assert [name for names in turns for name in names] == [f"fits-{i}" for i in range(8)]
    assert turns[0] == []


def test_pods_that_may_go_nowhere_cost_little_in_one_turn() -> None:
    """Each has rules of its own, so that nothing learnt about one serves the next."""
    waiting = WakeUps(lambda asked, where: asked.rules is None)
    ledger = recovered(*[f"n{i}" for i in range(300)])
    for i in range(100):
        waiting.refuse(pod(f"barred-{i:03}", rules=Rules(selector=(("zone", str(i)),))))
    waiting.refuse(pod("good", created=1))
    looks = []
    found: list[str] = []
    while not found:
        budget = Budget(1_000)
        found = [one.name for one in waiting.due(ledger, 0.0, budget)]
        looks.append(1_000 - budget.left)
    assert found == ["good"]
    assert max(looks) < 1_500
    assert len(looks) > 20


def test_a_search_that_a_turn_cuts_off_goes_on_at_the_same_node() -> None:
    waiting, ledger = WakeUps(), recovered(*[f"n{i:03}" for i in range(100)], gpus=(4000, 4000))
    request = Request(tuple(Share(f"c{i}", i, Role.APP, MEMORY, 3000) for i in range(3)), Pin.PLUGIN)
    waiting.refuse(PodFacts("wide", "team", "wide", request, unschedulable="x"))
    ledger.set_node(node("zz", 4000, 4000, 4000))
    turns = [[one.name for one in waiting.due(ledger, 0.0, Budget(60))] for _ in range(60)]
    assert [name for names in turns for name in names] == ["wide"]


def test_what_comes_free_meanwhile_is_offered_afterwards() -> None:
    waiting, ledger = WakeUps(), recovered("a")
    ledger.set_node(node("b", 8000, healthy=False))
    for i in range(100):
        waiting.refuse(pod(f"large-{i:03}", 9000 + i))
    waiting.refuse(pod("one", created=1))
    waiting.refuse(pod("two", created=2))
    first = [found.name for found in waiting.due(ledger, 0.0, Budget(50))]
    ledger.set_node(node("b", 8000))
    later = [name for _ in range(20) for name in woken(waiting, ledger)]
    assert first + later == ["one", "two"]


def test_nothing_is_kept_of_pods_that_are_gone() -> None:
    waiting, ledger = WakeUps(), recovered("n")
    for i in range(100):
        waiting.refuse(pod(f"p{i}", created=i), [f"n{i}", "n"])
    woken(waiting, ledger)
    for i in range(100):
        waiting.gone(f"p{i}")
    woken(waiting, ledger, 5.0)
    kept = [waiting._refused, waiting._order, waiting._offers, waiting._names]
    assert not any(kept)


def wide(name: str, containers: int = 3, units: int = 1000) -> PodFacts:
    request = Request(tuple(Share(f"c{i}", i, Role.APP, MEMORY, units + i) for i in range(containers)), Pin.PLUGIN)
    return PodFacts(name, "team", name, request, unschedulable="x")


@pytest.mark.parametrize("looks", [60, 100, 300])
@pytest.mark.parametrize("offered", [20, 0])
def test_nobody_is_lost_where_a_turn_ends_in_the_middle_of_a_pod(looks: int, offered: int) -> None:
    waiting, ledger = WakeUps(), recovered(*[f"n{i:02}" for i in range(20)], gpus=(8000, 8000))
    for i in range(60):
        waiting.refuse(wide(f"p{i:02}"), [f"n{j:02}" for j in range(offered)])
    found = [one.name for _ in range(2000) for one in waiting.due(ledger, 0.0, Budget(looks))]
    assert sorted(found) == [f"p{i:02}" for i in range(60)]


def test_a_node_may_get_and_lose_gpus_while_pods_are_looked_through() -> None:
    waiting, ledger = WakeUps(), recovered("n", gpus=(8000,))
    for i in range(40):
        waiting.refuse(pod(f"p{i:02}", 1000, created=i), ["n"])
    for gpus in ((8000,), (8000, 8000, 8000), (8000, 8000), (8000,)):
        ledger.set_node(node("n", *gpus))
        waiting.due(ledger, 0.0, Budget(30))


def test_a_touch_that_failed_is_followed_by_a_look_at_every_node() -> None:
    waiting, ledger = WakeUps(), recovered("a")
    ledger.set_node(node("b", 8000, healthy=False))
    waiting.refuse(pod("one"), ["a", "b"])
    assert [found.name for found in waiting.due(ledger, 0.0)] == ["one"]
    ledger.set_node(node("b", 8000))  # while the touch is under way; nobody else waits for it
    waiting.due(ledger, 0.1)
    ledger.set_node(node("a", 8000, healthy=False))
    waiting.failed_to_wake("one")
    assert woken(waiting, ledger, 1.0) == ["one"]


def test_pods_that_no_scheduler_asked_about_delay_nobody_who_was_asked_about() -> None:
    """After a restart nothing is known of most waiting pods; some of them may be kept off by whatever."""
    waiting, ledger = WakeUps(), recovered("n")
    for i in range(20):
        waiting.refuse(pod(f"unknown-{i:02}", created=i))
    waiting.refuse(pod("asked", created=100), ["n"])
    assert woken(waiting, ledger) == ["unknown-00", "asked"]
