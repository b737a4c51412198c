"""What a pod that runs uses, in `why`: told where it is known and fresh."""

from typing import Any

import pytest

from tests.ctl.why.cluster import Cluster, ask, world

FRESH, OLD = "2026-11-15T12:29:56Z", "2026-11-15T12:20:00Z"  # 9 s before, and too long
NODE = "gpu-b"


def measured(*containers: tuple[int, str, int, int | None], sampled: Any = FRESH, pod: str = "web-1") -> Cluster:
    """Containers as GPU, name, asked, used."""
    cluster = world()
    uid = cluster.pods["default", pod]["metadata"]["uid"]
    gpus: dict[int, list[Any]] = {0: [], 1: []}
    for gpu, name, asked, used in containers:
        gpus[gpu].append({"uid": uid, "pod": pod, "container": name, "grantedMiB": asked, "usedMiB": used})
    listed = [{"index": i, "uuid": f"GPU-{NODE}-{i}", "containers": these} for i, these in gpus.items()]
    cluster.gpunodes[NODE] = {"metadata": {"name": NODE}, "status": {"sampledAt": sampled, "gpus": listed}}
    return cluster


def test_what_it_uses_is_told_below_where_it_runs() -> None:
    answer = ask(measured((1, "main", 3500, 3100)), "web-1")
    assert answer.out.splitlines() == [
        *ask(world(), "web-1").out.splitlines(),
        "  uses  3100 of 3500 MiB (main), sampled 9 s ago",
    ]
    assert answer.code == 0


def test_more_than_it_asked_is_marked() -> None:
    lines = ask(measured((1, "main", 3500, 4700)), "web-1").out.splitlines()
    assert lines[-2:] == [
        "  uses  4700 of 3500 MiB (main), sampled 9 s ago",
        "  over  1200 MiB more than it asked (main): others on that GPU can run out of memory",
    ]


def test_a_pod_alone_on_its_gpu_puts_nobody_at_risk() -> None:
    lines = ask(measured((0, "main", 24268, 24300), pod="solo"), "solo").out.splitlines()
    assert lines[-1] == "  over  32 MiB more than it asked (main)"


def test_several_gpus_are_named() -> None:
    lines = ask(measured((0, "main", 3000, 2000), (1, "helper", 500, 600)), "web-1").out.splitlines()
    assert lines[-2:] == [
        "  uses  2000 of 3000 MiB (main, GPU 0), 600 of 500 MiB (helper, GPU 1), sampled 9 s ago",
        "  over  100 MiB more than it asked (helper): others on that GPU can run out of memory",
    ]


def test_programs_get_the_same() -> None:
    answer = ask(measured((1, "main", 3500, 4700)), "web-1", output="json").json
    assert answer["uses"] == [
        {"container": "main", "gpu": 1, "asked_mib": 3500, "used_mib": 4700, "over_mib": 1200}
    ]  # fmt: skip
    assert answer["sampled_at"] == FRESH


def _other_uid(cluster: Cluster) -> None:
    cluster.gpunodes[NODE]["status"]["gpus"][1]["containers"][0]["uid"] = "one-before"


def _malformed(cluster: Cluster) -> None:
    cluster.gpunodes[NODE]["status"]["gpus"][1]["containers"][0]["usedMiB"] = "much"


def _forbidden(cluster: Cluster) -> None:
    cluster.hidden = ("/apis/gpushare.io",)


def _missing(cluster: Cluster) -> None:
    cluster.gpunodes.clear()


def _old(cluster: Cluster) -> None:
    cluster.gpunodes[NODE]["status"]["sampledAt"] = OLD


def _unknown(cluster: Cluster) -> None:
    cluster.gpunodes[NODE]["status"]["gpus"][1]["containers"][0]["usedMiB"] = None


@pytest.mark.parametrize("change", [_other_uid, _malformed, _forbidden, _missing, _old, _unknown])
@pytest.mark.parametrize("output", ["", "wide", "json"])
def test_what_is_not_known_or_too_old_is_not_told(change: Any, output: str) -> None:
    cluster = measured((1, "main", 3500, 4700))
    change(cluster)
    answer = ask(cluster, "web-1", output=output)
    assert (answer.out, answer.err, answer.code) == (ask(world(), "web-1", output=output).out, "", 0)


def test_only_the_node_of_the_pod_is_asked_for() -> None:
    cluster = measured((1, "main", 3500, 3100))
    ask(cluster, "web-1")
    assert [path for path in cluster.asked if "gpunodes" in path] == ["/apis/gpushare.io/v1alpha1/gpunodes/gpu-b"]


def test_a_pod_that_waits_asks_for_none() -> None:
    cluster = world({"pods": [{"name": "llm", "containers": {"main": 7000}}]})
    ask(cluster, "llm")
    assert not [path for path in cluster.asked if "gpunodes" in path]


def test_who_may_not_read_all_pods_still_sees_what_the_own_pod_uses() -> None:
    cluster = measured((1, "main", 3500, 3100))
    cluster.hidden = ("/api/v1/nodes", "/api/v1/pods")
    assert "  uses  3100 of 3500 MiB (main), sampled 9 s ago" in ask(cluster, "web-1").out.splitlines()
