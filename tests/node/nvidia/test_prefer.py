"""Which devices are preferred, compared with a search through all choices."""

from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpushare.gpu.device import Link
from gpushare.node.nvidia.rules import prefer
from tests.node.nvidia import made

MOST = 6  # GPUs of a search through all choices


def names(replicas: int, *counts: int) -> list[str]:
    """The last so many replicas of each GPU."""
    return [f"GPU-{gpu}::{n}" for gpu, count in enumerate(counts) for n in range(replicas - count, replicas)]


def on(chosen: list[str]) -> Counter[str]:
    return Counter(name.partition("::")[0] for name in chosen)


# Replicas


def test_replicas_are_spread_over_the_gpus_with_the_fewest_in_use() -> None:
    known = {f"GPU-{i}": 4 for i in range(3)}
    assert on(prefer.replicas(known, names(4, 1, 4, 3), [], 3, packed=False)) == {"GPU-1": 2, "GPU-2": 1}


def test_packed_replicas_fill_the_gpu_with_the_most_in_use() -> None:
    known = {f"GPU-{i}": 4 for i in range(3)}
    assert on(prefer.replicas(known, names(4, 2, 4, 3), [], 3, packed=True)) == {"GPU-0": 2, "GPU-2": 1}


def test_of_equally_used_gpus_one_that_this_container_does_not_have_yet_is_taken() -> None:
    known = {"GPU-0": 4, "GPU-1": 4}
    must = ["GPU-0::0"]
    assert prefer.replicas(known, [*names(4, 3, 3), *must], must, 2, packed=False) == ["GPU-0::0", "GPU-1::1"]


def test_replicas_of_a_lost_gpu_are_not_preferred_and_the_answer_may_be_short() -> None:
    assert prefer.replicas({"GPU-0": 2}, names(2, 1, 2), [], 3, packed=False) == ["GPU-0::1"]


def test_ids_that_nobody_can_have_given_do_not_stop_the_choice() -> None:
    odd = ["GPU-0::" + "9" * 5000, "GPU-0::", "GPU-0::-1", "GPU-0::1"]
    assert sorted(prefer.replicas({"GPU-0": 2}, odd, [], 4, packed=False)) == sorted(odd)


def test_what_kubelet_insists_on_is_in_the_answer_even_if_it_is_unknown() -> None:
    assert prefer.replicas({}, ["GPU-9::0"], ["GPU-9::0"], 1, packed=False) == ["GPU-9::0"]
    assert prefer.whole([], ["GPU-9"], ["GPU-9"], 1, {}) == ["GPU-9"]


@given(
    free=st.lists(st.integers(0, 4), min_size=1, max_size=MOST),
    must=st.integers(0, 3),
    size=st.integers(0, 8),
    packed=st.booleans(),
    dice=st.randoms(use_true_random=False),
)
def test_every_choice_of_replicas_is_the_best_of_all(free: list[int], must: int, size: int, packed: bool, dice) -> None:  # type: ignore[no-untyped-def]
    available = names(4, *free)
    dice.shuffle(available)
    kept = available[: min(must, size)]
    known = {f"GPU-{i}": 4 for i in range(len(free))}
    chosen = prefer.replicas(known, available, kept, size, packed=packed)
    assert len(chosen) == len(set(chosen)) == min(size, len(available))
    assert chosen[: len(kept)] == kept
    assert set(chosen) <= set(available)
    used, left = {gpu: 4 - free[i] for i, gpu in enumerate(known)}, on(available)
    for name in kept:  # kubelet has taken these already
        left[name.partition("::")[0]] -= 1
        used[name.partition("::")[0]] += 1
    for name in chosen[len(kept) :]:
        gpu = name.partition("::")[0]
        best = (max if packed else min)(used[other] for other in used if left[other])
        assert used[gpu] == best
        left[gpu] -= 1
        used[gpu] += 1


# Whole GPUs


def dgx() -> list[Link]:
    """Eight GPUs: two groups of four with two NVLinks between each two, and one from each to its partner."""
    near = {frozenset(pair): 2 for group in (range(4), range(4, 8)) for pair in combinations(group, 2)}
    far = {frozenset((i, i + 4)): 1 for i in range(4)}
    return [
        Link(f"GPU-{a}", f"GPU-{b}", (near | far).get(frozenset((a, b)), 0), 50) for a, b in combinations(range(8), 2)
    ]


@pytest.mark.parametrize(
    ("available", "must", "size", "chosen"),
    [
        (range(8), [], 4, {0, 1, 2, 3}),
        (range(8), [5], 4, {4, 5, 6, 7}),
        ([0, 1, 4, 5, 6], [], 3, {4, 5, 6}),
        ([0, 1, 4, 5, 6], [], 2, {0, 1}),  # leaves the three that are together
        ([0, 1, 2, 4, 5], [], 2, {4, 5}),
        ([0, 4, 5, 6], [], 1, {0}),
        ([0, 1, 2, 4], [], 1, {4}),
        ([3, 4, 7], [3], 2, {3, 7}),
        (range(8), [], 8, set(range(8))),
        ([2], [], 3, {2}),
    ],
)
def test_gpus_with_nvlinks_between_them_go_together(
    available: list[int], must: list[int], size: int, chosen: set[int]
) -> None:
    known = made.gpus(8)
    scores = prefer.scores(known, dgx())
    answer = prefer.whole(
        [gpu.uuid for gpu in known], [f"GPU-{i}" for i in available], [f"GPU-{i}" for i in must], size, scores
    )
    assert set(answer) == {f"GPU-{i}" for i in chosen}
    assert len(answer) == len(chosen)


def test_without_nvlinks_pcie_decides_and_then_numa() -> None:
    known = made.gpus(4, numa=[0, 1, 0, 1])
    uuids = [gpu.uuid for gpu in known]
    assert prefer.whole(uuids, uuids, [], 2, prefer.scores(known, [])) == ["GPU-0", "GPU-2"]
    near = [Link("GPU-0", "GPU-1", 0, 10), Link("GPU-0", "GPU-2", 0, 50)]
    assert prefer.whole(uuids, uuids, [], 2, prefer.scores(known, near)) == ["GPU-0", "GPU-1"]
    strong = [*near, Link("GPU-0", "GPU-3", 1, 50)]
    assert prefer.whole(uuids, uuids, [], 2, prefer.scores(known, strong)) == ["GPU-0", "GPU-3"]


links = st.dictionaries(st.frozensets(st.integers(0, MOST - 1), min_size=2, max_size=2), st.integers(0, 4), max_size=15)


@given(
    links=links, available=st.sets(st.integers(0, MOST - 1)), must=st.sets(st.integers(0, MOST - 1)),
    size=st.integers(0, MOST + 1),
)  # fmt: skip
def test_no_other_set_of_gpus_is_connected_better(
    links: dict[frozenset[int], int], available: set[int], must: set[int], size: int
) -> None:
    scores = {frozenset(f"GPU-{i}" for i in pair): value for pair, value in links.items()}
    known, kept = [f"GPU-{i}" for i in range(MOST)], [f"GPU-{i}" for i in sorted(must)][:size]
    free = [f"GPU-{i}" for i in sorted(available)]
    chosen = prefer.whole(known, free, kept, size, scores)

    def score(gpus: tuple[str, ...]) -> int:
        return sum(scores.get(frozenset(pair), 0) for pair in combinations(gpus, 2))

    others = [gpu for gpu in free if gpu not in kept]
    missing = min(size - len(kept), len(others))
    assert chosen[: len(kept)] == kept
    assert len(set(chosen)) == len(chosen) == len(kept) + missing
    assert score(tuple(chosen)) == max(score((*kept, *more)) for more in combinations(others, missing))


def test_of_more_than_eight_gpus_the_next_best_is_taken_each_time() -> None:
    known = made.gpus(16)
    uuids = [gpu.uuid for gpu in known]
    group = ("GPU-3", "GPU-8", "GPU-12", "GPU-15")
    scores = prefer.scores(known, [Link(a, b, 4) for a, b in combinations(group, 2)])
    assert set(prefer.whole(uuids, uuids, [], 4, scores)) == set(group)
    assert set(prefer.whole(uuids, uuids, ["GPU-12"], 3, scores)) < set(group)
    assert prefer.whole(uuids, uuids, [], 1, scores)[0] not in group
