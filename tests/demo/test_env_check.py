"""The check that every container sees its GPU can fail: for each of those who should agree."""

import pytest

from gpushare.demo import env_check
from gpushare.demo.env_check import Table, Told


def container(env: str, annotated: str, given: str | None = None) -> Told:
    sets = [frozenset(uuids.split()) for uuids in (env, annotated, given or "")]
    return Told(("default", "p", "main"), sets[0], sets[1], None if given is None else sets[2])


TABLE = Table("gpu-d", {"A": 8000}, {"A": 8000})


def test_all_is_well() -> None:
    found = env_check.check([container("A", "A"), container("A B", "B A", "A B"), container("B", "B")], [TABLE])
    assert found.line() == "ok    env names its GPU: 3 of 3      1 by the device plugin, 2 by the binding"


@pytest.mark.parametrize(
    "wrong", [container("A", "B"), container("", ""), container("A", "A", "B"), container("A", "A", "")]
)
def test_a_container_that_sees_another_gpu_is_named(wrong: Told) -> None:
    found = env_check.check([container("A", "A"), wrong], [TABLE])
    assert found.line() == "FAIL  env names its GPU: 1 of 2      not so: default/p/main"


def test_a_plugin_that_counts_otherwise_is_named() -> None:
    found = env_check.check([container("A", "A", "A")], [TABLE, Table("gpu-e", {"A": 8000}, {"A": 7999})])
    assert found.line() == "FAIL  env names its GPU: 1 of 1      gpu-e counts otherwise"


def test_nothing_to_see_is_no_success() -> None:
    assert not env_check.check([], [TABLE]).ok
