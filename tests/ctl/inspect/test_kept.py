"""What is kept for a pod that has waited long, in `why` and `inspect`: both read it from the pod's annotation."""

from io import StringIO
from typing import Any

from gpushare.ctl.inspect import command
from gpushare.ctl.inspect.watch import Clock
from gpushare.ctl.screen import Screen
from tests.ctl.why.cluster import NOW, Cluster, ask

NODES: dict[str, Any] = {"gpu-a": {"gpus": [16276, 16276]}}
NOTE = {"gpushare.io/kept": '{"node":"gpu-a","gpus":[["GPU-gpu-a-1"]]}'}
PODS: list[dict[str, Any]] = [
    {"name": "full", "node": "gpu-a", "gpu": 0, "containers": {"main": 16000}},
    {"name": "half", "node": "gpu-a", "gpu": 1, "containers": {"main": 8000}},
    {"name": "large", "namespace": "prod", "containers": {"main": 15000}, "annotations": NOTE, "waits": "0/1 nodes"},
    {"name": "small", "containers": {"main": 2000}, "waits": "0/1 nodes"},
]


class _Clock(Clock):
    def now(self) -> float:
        return NOW


def looked(output: str) -> str:
    out = StringIO()
    command.run(command.Options(output=output), Cluster(NODES, PODS), Screen(out, StringIO()), _Clock())
    return out.getvalue()


def test_why_tells_the_pod_what_is_kept_for_it() -> None:
    answer = ask(Cluster(NODES, PODS), "large", namespace="prod")
    assert answer.out.startswith("large is Pending: no single GPU has 15000 MiB free.\n")
    assert "  gpu-a GPU 1 is kept for it: 6724 MiB must still come free there.\n" in answer.out


def test_why_tells_the_others_whom_they_wait_for() -> None:
    answer = ask(Cluster(NODES, PODS), "small")
    assert answer.out.startswith(
        "small is Pending: no single GPU has 2000 MiB free besides what is kept for a pod that has waited too long.\n"
    )
    assert "  What is free there is kept for prod/large, whose turn it is.\n" in answer.out
    assert ask(Cluster(NODES, PODS), "small", output="json").json["before"] == ["prod/large"]


def test_inspect_shows_it_to_people() -> None:
    shown = looked("wide")
    assert (
        "no single GPU has 15000 MiB free; gpu-a GPU 1 is kept for it: 6724 MiB must still come free there\n" in shown
    )
    assert "gpu-a GPU 1: free memory, up to 15000 MiB, is kept for prod/large, whose turn it is.\n" in shown


def test_the_table_that_programs_read_stays_as_it_is() -> None:
    without = [{key: value for key, value in one.items() if key != "annotations"} for one in PODS]
    out = StringIO()
    command.run(command.Options(), Cluster(NODES, without), Screen(out, StringIO()), _Clock())
    assert looked("") == out.getvalue()
