"""The demo's checks can fail: each of them, for what it is there for."""

from typing import Any

import msgspec
import pytest

from gpushare.core.facts import intree, names
from gpushare.demo import checks
from gpushare.demo.checks import Fullest
from gpushare.devcluster.apiserver.server import Audit
from gpushare.devcluster.nodes import gpu_uuid, simulated_node
from gpushare.view import snapshot
from gpushare.view.snapshot import Snapshot
from tests.support import objects


def cluster(*pods: Any) -> Snapshot:
    node = msgspec.convert(simulated_node("a", "10.0.0.1", [8000, 8000]), snapshot.Node)
    return snapshot.build([node], [msgspec.convert(pod, intree.Pod) for pod in pods], 0.0)


def pod(name: str, gpu: int, units: int) -> Any:
    made = objects.pod({"name": name, "node": "a", "containers": {"main": units}, "direct": True})
    made["metadata"]["annotations"][f"{names.VISIBLE_PREFIX}0"] = gpu_uuid("a", gpu)
    return made


def write(name: str, code: int = 201, verb: str = "create", agent: str = "gpushare", what: str = "/binding") -> Audit:
    return Audit(verb, f"/api/v1/namespaces/default/pods/{name}{what}", agent, code, 0.0)


def lines(snapshot: Snapshot, audit: list[Audit], *, expected: int = 1, stay: tuple[str, ...] = ("x",)) -> list[str]:
    worst = checks.fullest(snapshot, Fullest())
    return [check.line() for check in checks.checks(snapshot, worst, audit, expected, stay)]


def test_all_is_well() -> None:
    assert lines(cluster(pod("x", 0, 6000)), [write("x"), write("e", what="/events", verb="create")]) == [
        "ok    pods placed: 1 of 1            on 1 of 2 GPUs",
        "ok    over-committed: 0              fullest: a GPU 0, 6000 of 8000 MiB",
        "ok    extender's writes per pod: 1   1 bindings, 0 wake-ups; events apart",
        "ok    bound twice: 0, lost: 0        across 1 kill -9, 0 conflicts",
    ]


@pytest.mark.parametrize(
    ("audit", "failed"),
    [
        ([], ["pods placed: 0 of 1", "extender's writes per pod: 0"]),
        ([write("x"), write("x")], ["extender's writes per pod: 2", "bound twice: 1, lost: 0"]),
        ([write("x"), write("x", verb="patch", what="")], ["extender's writes per pod: 2"]),
        ([write("x"), write("x", code=409)], ["extender's writes per pod: 2"]),
        ([write("x", agent="kubectl")], ["pods placed: 0 of 1", "extender's writes per pod: 0"]),
        ([write("x"), write("y")], ["pods placed: 2 of 1"]),
    ],
)
def test_what_was_written_is_counted(audit: list[Audit], failed: list[str]) -> None:
    bad = [line for line in lines(cluster(pod("x", 0, 6000)), audit) if not line.startswith("ok ")]
    assert [line[6:36].strip() for line in bad] == failed
    assert all(line.startswith("FAIL  ") for line in bad)


def test_a_pod_that_is_gone_is_lost() -> None:
    assert lines(cluster(), [write("x")])[3].startswith("FAIL  bound twice: 0, lost: 1 ")


def test_a_gpu_that_gave_more_than_it_has_at_any_look_is_told() -> None:
    over, fine = cluster(pod("x", 1, 5000), pod("y", 1, 4000)), cluster(pod("x", 1, 5000))
    worst = checks.fullest(fine, checks.fullest(over, Fullest()))
    (check,) = [c for c in checks.checks(fine, worst, [write("x")], 1, ["x"]) if not c.ok]
    assert check.line() == "FAIL  over-committed: 1              fullest: a GPU 1, 9000 of 8000 MiB"
