"""Which containers use more than they asked for: uses and times in, over-uses out."""

import pytest

from gpushare.node.usage.model import ContainerUse, GpuUse
from gpushare.node.usage.overuse import Key, Tolerance, Watch

MIB = 1 << 20
GRACE = 60.0


def _gpu(*containers: ContainerUse, index: int = 0) -> GpuUse:
    return GpuUse(index, f"GPU-{index}", "T4", 16000 * MIB, 0, containers=containers)


def _use(pod: str, granted: int | None, used: int | None, container: str = "main") -> ContainerUse:
    size = granted * MIB if granted is not None else None
    return ContainerUse("ml", pod, f"{pod}-uid", container, size, used=used * MIB if used is not None else None)


def _watched(*looks: tuple[float, int | None], granted: int | None = 6000) -> Watch:
    """After looks at these times, at which a container used so much."""
    watch = Watch(Tolerance(), GRACE)
    for now, used in looks:
        watch.look([_gpu(_use("web", granted, used))], now)
    return watch


@pytest.mark.parametrize(
    ("granted", "used", "over"),
    [
        (6000, 6000, False),
        (6000, 6300, False),  # 5 %
        (6000, 6301, True),
        (1000, 1256, False),  # 256 MiB are more than 5 % of it
        (1000, 1257, True),
        (10000, 10257, False),  # 5 % are more than 256 MiB
        (None, 9000, False),
        (6000, None, False),
    ],
)
def test_the_larger_of_both_tolerances_is_allowed_above_a_grant(
    granted: int | None, used: int | None, over: bool
) -> None:
    watch = _watched((0.0, used), (61.0, used), granted=granted)
    assert bool(watch.current) == over


def test_it_counts_after_the_grace_and_says_since_when_and_who_is_at_risk() -> None:
    watch = Watch(Tolerance(), GRACE)
    gpu = _gpu(_use("web", 6000, 9100), _use("web", 100, 50, "side"), _use("a", 4000, 10), _use("b", 10, None))
    for now in (5.0, 65.0):
        watch.look([gpu], now)
        assert watch.current == ()
    watch.look([gpu], 66.0)
    (over,) = watch.current
    assert over.key == Key("web-uid", "main", "GPU-0")
    assert (over.namespace, over.pod, over.gpu, over.since) == ("ml", "web", 0, 5.0)
    assert (over.granted, over.used, over.beyond) == (6000 * MIB, 9100 * MIB, 3100 * MIB)
    assert over.neighbours == ("ml/a", "ml/b")


def test_it_ends_at_once_and_begins_anew() -> None:
    assert _watched((0, 9000), (61, 9000), (62, 6000)).current == ()
    assert _watched((0, 9000), (61, 6000), (62, 9000), (120, 9000)).current == ()


def test_use_that_is_not_known_begins_nothing_and_ends_nothing() -> None:
    assert _watched((0, None), (61, None), (62, 9000)).current == ()
    assert _watched((0, 9000), (30, 9000), (61, None)).current == ()
    (over,) = _watched((0, 9000), (30, None), (61, 9000)).current
    assert over.since == 0
    (still,) = _watched((0, 9000), (61, 9000), (100, None)).current
    assert (still.since, still.used) == (0, 9000 * MIB)


def test_use_that_is_not_known_for_longer_than_the_grace_is_forgotten() -> None:
    assert _watched((0, 9000), (61, 9000), (122, None)).current == ()
    assert _watched((0, 9000), (61, 9000), (122, None), (123, 9000)).current == ()


def test_a_container_that_is_gone_is_over_no_longer() -> None:
    watch = _watched((0, 9000), (61, 9000))
    watch.look([_gpu()], 62)
    assert watch.current == ()


def test_the_largest_over_use_comes_first_and_each_gpu_counts_for_itself() -> None:
    watch = Watch(Tolerance(), GRACE)
    gpus = [_gpu(_use("a", 1000, 2000), _use("b", 1000, 3000)), _gpu(_use("a", 1000, 5000), index=1)]
    for now in (0.0, 61.0):
        watch.look(gpus, now)
    assert [(over.pod, over.gpu) for over in watch.current] == [("a", 1), ("b", 0), ("a", 0)]
