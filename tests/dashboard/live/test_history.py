"""Figures of 48 hours in memory: what is asked is what was, unknown stays unknown, and memory is bounded."""

from array import array
from typing import Any

import pytest

from gpushare.core.facts.model import PodFacts
from gpushare.dashboard.live import history as histories
from gpushare.dashboard.live.columns import Column, Figures, Row
from gpushare.dashboard.live.history import History
from gpushare.dashboard.live.sums import Cluster
from tests.dashboard.live.world import NOW

TOTAL = 65_000  # so that amounts are kept exactly
START = NOW // 300 * 300
EMPTY = Cluster()


def row(
    *used: int,
    name: str = "n",
    total: int = TOTAL,
    granted: int = 100,
    shares: dict[str, tuple[int, int]] | None = None,
) -> Row:
    """A node whose GPUs use so much. `shares`: of its first GPU, what each pod was given and uses."""
    there = [(PodFacts(uid, "team", uid, None), *amounts) for uid, amounts in (shares or {}).items()]
    empty: list[list[Any]] = [[] for _ in used[1:]]
    return Row(
        id=0, name=name, unit="MiB", pin=0, zone=0, state="ready", sold=None, sampled=None, until=0.0, unplaced=0,
        gpus=[Column(i, f"GPU-{i}", i, 0, total) for i in range(len(used))],
        figures=[Figures(1, granted, 0, amount, 50, 61, 276, 0) for amount in used],
        shares=[[(at, 0, share[1]) for at, share in enumerate(there)], *empty],
        pods=[[share[0] for share in there], *empty],
        used=[[share[2] for share in there], *empty],
    )  # fmt: skip


class Sampled:
    """A history that is sampled as ticks do."""

    def __init__(self) -> None:
        self.history, self.now = History(), START

    def see(self, seen: Row, samples: int = 1, cluster: Cluster = EMPTY) -> None:
        self.history.see(seen, self.now)
        for _ in range(samples):
            self.history.sample(self.now, cluster)
            self.now += 15

    def gpu(self, range_: str = "1h", key: str = "GPU-0") -> dict[str, Any]:
        return self.history.gpu("n", key, range_, self.now)


def test_an_hour_is_known_by_15_seconds() -> None:
    past = Sampled()
    past.see(row(10))
    past.see(row(20))
    found = past.gpu()
    assert found["times"] == [START, START + 15]
    assert (found["used"], found["granted"], found["total"]) == ([10, 20], [100, 100], [TOTAL, TOTAL])
    assert (found["util"], found["temp"], found["power"]) == ([50, 50], [61, 61], [276, 276])
    past.see(row(30), 500)
    assert len(past.gpu()["times"]) == 239  # the first of 240 is an hour ago


def test_unknown_is_none_and_zero_is_zero() -> None:
    past = Sampled()
    past.see(row(0))
    past.see(row(-1, granted=-1))
    found = past.gpu()
    assert (found["used"], found["granted"]) == ([0, None], [100, None])


def test_amounts_are_right_to_a_mib_or_two() -> None:
    past = Sampled()
    for used in (0, 1, 41_234, 143_770, 143_771):
        past.see(row(used, total=143_771))
    found = past.gpu()["used"]
    assert all(abs(a - b) <= 2 for a, b in zip(found, (0, 1, 41_234, 143_770, 143_771), strict=True))


def test_more_than_a_gpu_has_is_all_of_it() -> None:
    past = Sampled()
    past.see(row(TOTAL + 500))
    assert past.gpu()["used"] == [TOTAL]


def test_longer_ranges_have_the_mean_of_gpus_and_the_peak_of_shares() -> None:
    past = Sampled()
    past.see(row(10, shares={"p": (50, 10)}), 10)
    past.see(row(30, shares={"p": (50, 30)}), 10)
    past.see(row(-1, shares={"p": (50, -1)}), 20)
    found = past.gpu("48h")
    # Two frames of 5 minutes and, because the second is not complete yet, its samples.
    assert found["times"][0] == START + 19 * 15
    assert (found["used"][0], found["used"][1:]) == (20, [None] * 20)
    assert (found["shares"][0]["used"][0], found["shares"][0]["granted"]) == (30, [50] * 21)


def test_a_mean_is_of_what_is_known() -> None:
    past = Sampled()
    past.see(row(10), 10)
    past.see(row(-1), 10)
    past.see(row(-1))
    assert past.gpu("6h")["used"][0] == 10


def test_48_hours_are_known_and_no_more() -> None:
    past = Sampled()
    past.see(row(10), 50 * 240)
    times = past.gpu("48h")["times"]
    assert past.now - 48 * 3600 < times[0] <= past.now - 48 * 3600 + 600
    assert 570 < len(times) < 600
    assert past.gpu("7d")["note"] == histories.NOT_SO_LONG


def test_a_gap_is_none() -> None:
    past = Sampled()
    past.see(row(10))
    past.now += 600
    past.see(row(20))
    found = past.gpu()
    assert found["times"] == [START, START + 15, START + 615]
    assert (found["used"], found["total"]) == ([10, None, 20], [TOTAL, None, TOTAL])
    assert past.history.cluster("1h", past.now)["total"] == [0, None, 0]


def test_a_share_is_known_while_it_was_there() -> None:
    past = Sampled()
    past.see(row(0))
    past.see(row(0, shares={"p": (50, 10)}))
    past.see(row(0, shares={"p": (50, -1)}))
    past.see(row(0))
    share = past.gpu()["shares"][0]
    assert (share["namespace"], share["pod"], share["uid"]) == ("team", "p", "p")
    assert (share["granted"], share["used"]) == ([None, 50, 50, None], [None, 10, None, None])


def test_a_node_that_is_gone_is_unknown_since_then_and_known_before() -> None:
    past = Sampled()
    past.see(row(10, shares={"p": (50, 10)}))
    past.history.forget_node("n", past.now)
    past.history.sample(past.now, Cluster())
    assert past.gpu()["used"] == [10, None]
    assert past.gpu()["shares"][0]["used"] == [10, None]


def test_a_gpu_of_which_nothing_is_known_has_no_columns() -> None:
    found = Sampled().gpu()
    assert (found["times"], found["used"], found["shares"]) == ([], [], [])


def test_what_went_48_hours_ago_is_forgotten_and_its_slot_says_nothing_of_it_to_the_next() -> None:
    past = Sampled()
    past.see(row(10, shares={"p": (50, 10)}), 2)
    past.history.forget_node("n", past.now)
    past.now += 48 * 3600 + 60
    past.history.sample(past.now, Cluster())
    assert past.gpu()["times"] == []
    past.now += 15
    past.see(row(30, name="other", shares={"q": (60, 5)}))
    found = past.history.gpu("other", "GPU-0", "48h", past.now)
    assert found["used"] == [30]
    assert [(share["pod"], share["used"]) for share in found["shares"]] == [("q", [5])]


def test_a_gpu_of_another_size_is_another_one() -> None:
    past = Sampled()
    past.see(row(10))
    past.see(row(10, total=2 * TOTAL))
    assert past.gpu()["total"] == [2 * TOTAL]


def test_pods_that_come_and_go_do_not_take_ever_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "MOST_BYTES", 816 * (8 + 2 * 5))  # one GPU and five shares
    past = Sampled()
    for number in range(50):
        past.see(row(0, shares={f"p{number}": (50, number)}))
    shares = past.gpu()["shares"]
    assert [share["pod"] for share in shares] == [f"p{number}" for number in range(45, 50)]
    assert [amount for amount in shares[-1]["used"] if amount is not None] == [49]


def test_shares_of_now_are_kept_whatever_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "MOST_BYTES", 0)
    past = Sampled()
    past.see(row(0, shares={f"p{number}": (50, number) for number in range(9)}))
    assert len(past.gpu()["shares"]) == 9


def test_a_pod_that_comes_back_goes_on() -> None:
    past = Sampled()
    past.see(row(0, shares={"p": (50, 10)}))
    past.see(row(0))
    past.see(row(0, shares={"p": (50, 20)}))
    assert past.gpu()["shares"][0]["used"] == [10, None, 20]


def test_the_peak_of_a_pod_is_of_48_hours_and_of_all_its_gpus() -> None:
    past = Sampled()
    past.see(row(0, shares={"p": (50, 40), "q": (50, -1)}))
    past.see(row(0, shares={"p": (50, 10), "q": (50, -1)}))
    other = row(0, name="m", shares={"p": (50, 3)})
    past.see(other)
    assert past.history.peaks() == {"p": 43, "q": None}
    for _ in range(13):  # blocks of 4 hours
        past.now += 4 * 3600
        past.see(row(0, shares={"p": (50, 10), "q": (50, -1)}))
    assert past.history.peaks() == {"p": 13, "q": None}
    past.see(row(0))
    assert past.history.peaks() == {"p": 3}


def test_over_use_is_known_since_it_began() -> None:
    past = Sampled()
    past.see(row(0, shares={"p": (50, 10)}), 3)
    past.see(row(0, shares={"p": (50, 90)}), 4)
    assert past.history.over_for("n", "GPU-0", "p", past.now) == 60
    past.see(row(0, shares={"p": (50, 50)}))
    assert past.history.over_for("n", "GPU-0", "p", past.now) is None
    assert past.history.over_for("n", "GPU-0", "q", past.now) is None


def test_the_cluster_has_means_of_memory_and_peaks_of_who_waits() -> None:
    past = Sampled()
    past.see(row(0), 10, Cluster(1000, 100, 50, {"NoSingleGpu": 1}))
    past.see(row(0), 10, Cluster(1000, 200, -1, {"TooLarge": 9}))
    past.see(row(0), 1, Cluster(1000, 200, -1, {}))
    found = past.history.cluster("48h", past.now)
    assert (found["total"], found["granted"], found["used"]) == ([1000, 1000], [150, 200], [50, None])
    assert found["waiting"] == {"NoSingleGpu": [1, 0], "TooLarge": [9, 0]}
    assert (found["source"], found["from"], found["note"]) == ("memory", START, histories.BEGUN)
    assert len(past.history.cluster("1h", past.now)["times"]) == 21


def test_a_frame_takes_eight_bytes_for_a_gpu_and_two_for_a_share() -> None:
    kept = History()
    assert kept._gpu_ring.slot_bytes == 8 * 816
    assert kept._share_ring.slot_bytes == 2 * 816
    assert array("H").itemsize == 2


def test_a_new_pod_in_the_slot_of_an_old_one_begins_with_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "MOST_BYTES", 0)
    past = Sampled()
    past.see(row(0, shares={"p": (50, 40)}), 5)
    past.see(row(0))
    past.see(row(0, shares={"q": (50, 10)}), 15)
    past.see(row(0, shares={"q": (50, 10)}))
    found = past.gpu("48h")["shares"]
    assert [(share["pod"], share["used"][0]) for share in found] == [("q", 10)]
    assert past.history.peaks() == {"q": 10}


def test_a_clock_that_is_set_back_leaves_times_in_order() -> None:
    past = Sampled()
    past.see(row(10), 100, Cluster(1000, 100, 50, {}))
    past.now -= 600
    past.see(row(20), 10, Cluster(1000, 100, 60, {}))
    for range_ in ("1h", "48h"):
        for columns in (past.gpu(range_), past.history.cluster(range_, past.now)):
            assert columns["times"] == sorted(set(columns["times"]))
            assert columns["times"][-1] == past.now - 15
            assert columns["used"][0] in (10, 50)
            assert columns["used"][-1] in (20, 60)


def test_what_was_first_seen_while_the_clock_was_ahead_is_known_once_it_is_right() -> None:
    past = Sampled()
    past.now += 9 * 3600
    past.see(row(10, shares={"p": (50, 40), "q": (50, 40)}), 10)
    past.see(row(10, shares={"p": (50, 40)}))
    past.now -= 9 * 3600
    past.see(row(20, shares={"p": (50, 30)}), 4)
    found = past.gpu()
    assert found["used"] == [20] * 4
    assert [(share["pod"], share["used"]) for share in found["shares"]] == [("p", [30] * 4)]
    past.now += 49 * 3600
    past.see(row(20, shares={"p": (50, 30)}), 1)
    assert past.history._share_slots.is_any_free, "what has gone is forgotten 48 hours later"


def test_a_clock_that_is_set_back_again_and_again_ends_nothing() -> None:
    past = Sampled()
    past.now += 299
    for _ in range(290):
        past.see(row(10))
        past.now -= 16
    past.now += 16
    assert past.gpu()["used"] == [10]
