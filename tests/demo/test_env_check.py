"""The check that every container sees its GPU can fail: for each of those who should agree."""

import pytest

from gpushare.demo import env_check
from gpushare.demo.env_check import ContainerGpus, Table
from gpushare.view import snapshot
from tests.ctl import worlds


def container(env: str, annotated: str, granted: str | None = None) -> ContainerGpus:
    sets = [frozenset(uuids.split()) for uuids in (env, annotated, granted or "")]
    return ContainerGpus(("default", "p", "main"), sets[0], sets[1], None if granted is None else sets[2])


TABLE = Table("gpu-d", {"A": 8000}, {"A": 8000})


def test_every_source_names_the_same_gpus() -> None:
    check = env_check.check([container("A", "A"), container("A B", "B A", "A B"), container("B", "B")], [TABLE])
    assert check.line() == "ok    env names its GPU: 3 of 3      1 by the device plugin, 2 by the binding"


@pytest.mark.parametrize(
    "wrong", [container("A", "B"), container("", ""), container("A", "A", "B"), container("A", "A", "")]
)
def test_a_container_that_sees_another_gpu_is_named(wrong: ContainerGpus) -> None:
    check = env_check.check([container("A", "A"), wrong], [TABLE])
    assert check.line() == "FAIL  env names its GPU: 1 of 2      wrong: default/p/main"


def test_a_plugin_whose_table_differs_is_named() -> None:
    check = env_check.check([container("A", "A", "A")], [TABLE, Table("gpu-e", {"A": 8000}, {"A": 7999})])
    assert check.line() == "FAIL  env names its GPU: 1 of 1      gpu-e: plugin and annotations differ"


def test_no_containers_is_no_success() -> None:
    assert not env_check.check([], [TABLE]).ok


@pytest.mark.parametrize(
    ("pods", "env", "line"),
    [
        (1, "NVIDIA_VISIBLE_DEVICES=GPU-n-0", "ok    sold by count: 1 of 1          p-0: env names a GPU of its node"),
        (1, "NVIDIA_VISIBLE_DEVICES=GPU-m-0", "FAIL  sold by count: 1 of 1          wrong: p-0/main"),
        (1, "NVIDIA_VISIBLE_DEVICES=", "FAIL  sold by count: 1 of 1          wrong: p-0/main"),
        (2, "NVIDIA_VISIBLE_DEVICES=GPU-n-0", "FAIL  sold by count: 2 of 1          over-committed: n"),
        (0, "", "FAIL  sold by count: 0 of 1          nobody has any"),
    ],
)
def test_what_is_sold_by_count_is_checked_too(pods: int, env: str, line: str) -> None:
    asking = [worlds.pod(f"p-{i}", counted={"nvidia.com/gpu": 1}, on="n") for i in range(pods)]
    cluster = worlds.Cluster(([worlds.seller("n", 8)], asking))
    assert env_check.check_sold(snapshot.read(cluster, 0.0), lambda *container: env).line() == line
