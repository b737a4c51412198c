"""Who uses which GPU: one node in the JSON of Aliyun's gpushare, and the GPUs of each container."""

import msgspec

from gpushare.core.explain import inspected
from gpushare.core.facts import names
from gpushare.core.facts.vitals import GpuVitals, Status
from tests.support.builders import bound, container, facts, ledger, node_state, pod


def test_a_node_says_unit_health_and_pods_of_each_gpu() -> None:
    where = facts(8000, 6000, unhealthy=[1])
    book = ledger(where)
    book.observe(bound(pod(3000, name="b"), where, ((0,),)), 0.0)
    book.observe(bound(pod(2000, name="a", namespace="ml"), where, ((0,),)), 0.0)
    book.observe(bound(pod(5000, name="c"), where, ((1,),)), 0.0)
    assert inspected.inspected(node_state(book, "n")) == {
        "name": "n",
        "unit": "MiB",
        "totalGPU": 14000,
        "usedGPU": 10000,
        "devs": [
            {
                "id": 0,
                "totalGPU": 8000,
                "usedGPU": 5000,
                "healthy": True,
                "pods": [
                    {"name": "b", "namespace": "default", "usedGPU": 3000},
                    {"name": "a", "namespace": "ml", "usedGPU": 2000},
                ],
            },
            {
                "id": 1,
                "totalGPU": 6000,
                "usedGPU": 5000,
                "healthy": False,
                "pods": [{"name": "c", "namespace": "default", "usedGPU": 5000}],
            },
        ],
    }


def test_a_pod_whose_gpu_nobody_knows_counts_on_every_gpu_and_never_beyond_it() -> None:
    where = facts(8000, 2000)
    book = ledger(where)
    book.observe(pod(3000, on="n", direct=False), 0.0)
    view = inspected.inspected(node_state(book, "n"))
    assert view["usedGPU"] == 5000
    devices = msgspec.convert(view["devs"], list[dict[str, object]])
    assert [(device["usedGPU"], device["pods"]) for device in devices] == [(3000, []), (2000, [])]


def test_an_assumption_is_charged_but_is_no_pod_of_a_gpu() -> None:
    book = ledger(facts(8000))
    book.assume(pod(3000), "n", "binpack", 0.0)
    (device,) = msgspec.convert(inspected.inspected(node_state(book, "n"))["devs"], list[dict[str, object]])
    assert (device["usedGPU"], device["pods"]) == (3000, [])


def test_containers_of_a_directly_pinned_pod_have_the_gpus_their_annotations_name() -> None:
    where = facts(8000, 8000, 8000)
    placed = bound(pod(2000, 3000), where, ((2,), (0,)))
    assert inspected.gpus_of(placed, where) == {"c0": [2], "c1": [0]}


def test_a_container_on_several_gpus_has_them_in_order() -> None:
    where = facts(8000, 8000, 8000)
    placed = bound(pod(4000, split=2), where, ((2, 0),))
    assert inspected.gpus_of(placed, where) == {"c0": [0, 2]}


def test_on_a_plugin_node_the_allocation_says_it() -> None:
    where = facts(8000, 8000, pin="plugin")
    placed = bound(pod(2000, 3000, direct=False), where, ((1,), (0,)))
    assert inspected.gpus_of(placed, where) == {"c0": [1], "c1": [0]}


def test_an_init_container_that_holds_nothing_more_is_left_out() -> None:
    where = facts(8000, pin="plugin")
    placed = bound(pod(4000, init=[2000], direct=False), where, ((0,), (0,)))
    assert inspected.gpus_of(placed, where) == {"c0": [0]}


def test_aliyuns_index_is_the_gpu_of_all_containers() -> None:
    where = facts(15, 15, pin="aliyun", unit="GiB")
    placed = pod(3, 4, direct=False, on="n", notes={names.ALIYUN_IDX: "1"})
    assert inspected.gpus_of(placed, where) == {"c0": [1], "c1": [1]}


def test_a_pod_that_asks_nothing_has_no_gpus() -> None:
    assert inspected.gpus_of(pod(containers=[container("c")]), facts(8000)) == {}


def test_what_gpus_do_is_added_where_it_is_known() -> None:
    where = facts(8000, 6000)
    book = ledger(where)
    told = Status("2026-11-15T12:30:00Z", gpus=(GpuVitals(1, where.gpus[1].uuid, used_mib=70, utilization=3),))
    first, second = msgspec.convert(inspected.inspected(node_state(book, "n"), told)["devs"], list[dict[str, object]])
    assert first == {"id": 0, "totalGPU": 8000, "usedGPU": 0, "healthy": True, "pods": []}
    assert second == {
        "id": 1, "totalGPU": 6000, "usedGPU": 0, "healthy": True, "pods": [],
        "usedMiB": 70, "utilization": 3, "sampledAt": "2026-11-15T12:30:00Z",
    }  # fmt: skip
