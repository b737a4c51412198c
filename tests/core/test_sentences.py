"""The events people read under `kubectl describe pod`."""

from gpushare.core import sentences
from tests.core import builders
from tests.core.builders import asks, bound, container, facts, pod

NODE = facts(16276, 40536, name="gpu-c")


def test_one_container_on_one_gpu() -> None:
    said = sentences.assigned(NODE, asks(containers=[container("main", 7000)]), ((1,),), [16276, 536])
    assert said == "gpu-c GPU 1: 7000 MiB for main; 536 of 40536 MiB left."


def test_two_containers_on_two_gpus() -> None:
    request = asks(containers=[container("main", 14000), container("helper", 12000)])
    said = sentences.assigned(NODE, request, ((0,), (1,)), [0, 0])
    assert said == "gpu-c: GPU 0 14000 MiB for main, GPU 1 12000 MiB for helper."


def test_one_container_over_two_gpus() -> None:
    said = sentences.assigned(NODE, asks(containers=[container("main", 40000)], split=2), ((0, 1),), [0, 0])
    assert said == "gpu-c: GPU 0 and GPU 1, 20000 MiB each for main."


def test_a_whole_gpu() -> None:
    said = sentences.assigned(NODE, asks(containers=[container("main", whole=1)]), ((0,),), [0, 0])
    assert said == "gpu-c GPU 0: the whole GPU (16276 MiB) for main."


def test_a_waiting_pod_is_told_the_closest_place_and_where_to_ask() -> None:
    made = builders.ledger(NODE)
    made.observe(bound(pod(16276), NODE, ((0,),)), 0.0)
    made.observe(bound(pod(34000), NODE, ((1,),)), 0.0)
    assert sentences.waiting(made, pod(7000, name="llm")) == (
        "NoGPUFits",
        (
            "No single GPU has 7000 MiB free. Closest: gpu-c GPU 1, 6536 of 40536 MiB free, 464 short. "
            "More: kubectl gpushare why llm -n default"
        ),
    )


def test_a_pod_that_can_never_fit_is_told_the_largest_gpu() -> None:
    assert sentences.waiting(builders.ledger(NODE), pod(50000)) == (
        "NeverFits",
        (
            "No GPU is as large as 50000 MiB; the largest is 40536 MiB (gpu-c). "
            "Ask less, or several GPUs: annotation aliyun.com/gpu-count."
        ),
    )


def test_an_invalid_request_is_told_what_to_write() -> None:
    assert sentences.waiting(builders.ledger(), pod(containers=[container("main", "4Gi")])) == (
        "InvalidGPURequest",
        'aliyun.com/gpu-mem counts MiB, not bytes: container main asks 4Gi, read as 4294967296 MiB. Write "4096".',
    )


def test_long_names_lose_their_middle() -> None:
    assert sentences.short_name("team-recommendation-ranking-model-v2-6d9f7-x7k2p") == "team-recommen…-x7k2p"
    assert sentences.short_name("llm") == "llm"


def test_no_event_is_longer_than_200_characters() -> None:
    many = asks(containers=[container(f"container-{i}" * 4, 10) for i in range(12)])
    assert len(sentences.assigned(NODE, many, ((0,),) * 12, [0, 0])) == 200
