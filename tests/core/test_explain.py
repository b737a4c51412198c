"""Why a pod waits: every reason has an example here, with the words people see."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpushare.core import book, explain, fit, ledger, request, sentences
from gpushare.core.explain import Explanation
from gpushare.core.model import PodFacts, Refusal, Request
from tests.core import builders
from tests.core.builders import bound, container, facts, pod


def world(*nodes: Any, pods: tuple[PodFacts, ...] = ()) -> ledger.Ledger:
    made = builders.ledger(*nodes)
    for one in pods:
        made.observe(one, 0.0)
    return made


FULL = facts(8, name="n"), bound(pod(8, name="full"), facts(8, name="n"), ((0,),))
PLUGIN = facts(8, 8, pin="plugin")
PLUGIN_FULL = tuple(bound(pod(8, name=f"f{i}", direct=False), PLUGIN, ((i,),)) for i in range(2))
SPLIT_UNASSIGNED = bound(pod(4, split=2, direct=False, name="half"), PLUGIN, ((0, 1),))


def _rested() -> ledger.Ledger:
    made = world(facts(8), pods=(bound(pod(4, name="r"), facts(8), ((0,),)),))
    made.observe(pod(4, name="r", on="n", phase="Failed", reason="UnexpectedAdmissionError"), 0.0)
    return made


EXAMPLES: dict[str, tuple[ledger.Ledger, PodFacts, str]] = {
    "NoSingleGpu": (world(FULL[0], pods=FULL[1:]), pod(4), "no single GPU has 4 MiB free"),
    "NoHealthyGpu": (world(facts(8, 4, sick=[0])), pod(6), "no healthy GPU has 6 MiB free"),
    "NoGpusEach": (world(facts(8, 8), pods=(bound(pod(8), facts(8, 8), ((0,),)),)), pod(8, split=2),
                   "no 2 GPUs have 4 MiB free each"),
    "NoGpusFor": (world(facts(8, 4)), pod(6, 5), "no GPUs for containers of 6 + 5 MiB"),
    "NoWholeGpu": (world(FULL[0], pods=FULL[1:]), pod(whole=1), "no GPU is wholly free"),
    "NoInitGpu": (world(PLUGIN, pods=PLUGIN_FULL), pod(2, init=[6], direct=False),
                  "no single GPU for init and app containers (6 MiB)"),
    "TooLarge": (world(facts(8)), pod(9), "no GPU is as large as 9 MiB"),
    "TooFewGpus": (world(facts(8)), pod(whole=2), "node(s) with fewer than 2 GPUs"),
    "NoSharedGpu": (world(), pod(4), "node(s) without a shared GPU"),
    "CountsOtherwise": (world(facts(8, unit="GiB")), pod(4, unit="MiB"), "node(s) that count in GiB"),
    "OneContainer": (world(facts(8, 8, pin="original")), pod(4, 4, direct=False),
                     "node(s) whose plugin serves one container on one GPU"),
    "PinsByPlugin": (world(PLUGIN), pod(4), "node(s) that pin by device plugin"),
    "NeedsPolicy": (world(facts(8)), pod(4, direct=False), "node(s) that need gpushare's admission policy"),
    "NvidiaToo": (world(facts(8, nvidia=1)), pod(4), "node(s) that NVIDIA's plugin also hands out"),
    "PluginDown": (world(facts(8, state="draining")), pod(4), "node(s) whose GPU plugin is down"),
    "JustRefused": (_rested(), pod(4), "node(s) that refused this request just now"),
    "LikeUnderWay": (world(PLUGIN, pods=(SPLIT_UNASSIGNED,)), pod(4, direct=False),
                     "node(s) with a like request under way"),
    "NotMemory": (world(), pod(containers=[container("a", "4Gi")]), "aliyun.com/gpu-mem counts MiB, not bytes"),
    "NotWhole": (world(), pod(containers=[container("a", "-1")]), "aliyun.com/gpu-mem is not a whole number"),
    "CountNotWhole": (world(), pod(4, split="x"), "aliyun.com/gpu-count is not a whole number"),
    "NotDivisible": (world(), pod(5, split=2), "5 MiB cannot be split evenly over 2 GPUs"),
    "BothLimits": (world(), pod(containers=[container("a", 4, whole=1)]),
                   "aliyun.com/gpu-mem and aliyun.com/gpu-count on one container"),
    "UnknownPolicy": (world(), pod(4, policy="x"), "gpushare.io/policy is not binpack or spread"),
    "UnknownUnit": (world(), pod(4, unit="x"), "gpushare.io/memory-unit is not MiB or GiB"),
}  # fmt: skip
NOT_ABOUT_PLACES = {"Decided"}  # said to a caller that asks about a pod which is placed already


@pytest.mark.parametrize("code", EXAMPLES)
def test_every_reason_is_given_in_its_words(code: str) -> None:
    state, asked, message = EXAMPLES[code]
    said = explain.explain(state, asked)
    assert (said.code, said.message) == (code, message)


def test_no_reason_is_without_an_example() -> None:
    source = "".join(Path(module.__file__ or "").read_text() for module in (fit, request, ledger, book, explain))
    codes = set(re.findall(r'Refusal\(\s*"(\w+)"', source)) | set(re.findall(r'_say\(\s*(?:code or )?"(\w+)"', source))
    codes |= set(re.findall(r'"(No\w+)" if heals', source))
    assert codes - NOT_ABOUT_PLACES == set(EXAMPLES)


@pytest.mark.parametrize("code", EXAMPLES)
def test_events_are_short_and_begin_with_the_reason(code: str) -> None:
    state, asked, message = EXAMPLES[code]
    said = sentences.waiting(state, asked)
    assert said is not None
    assert len(said[1]) <= 200
    if code != "NoSharedGpu":
        assert said[1].lower().startswith(message.lower())


def test_a_pod_that_fits_gets_no_warning() -> None:
    assert sentences.waiting(world(facts(8)), pod(4)) is None
    assert explain.explain(world(facts(8)), pod(4)).verdict == "fits"


def test_a_pod_that_asks_nothing_fits() -> None:
    said = explain.explain(world(), pod(containers=[container("a")]))
    assert (said.verdict, said.code, said.request) == ("fits", "NoRequest", None)


def test_a_bound_pod_says_where_it_is_and_whose_turn_it_is() -> None:
    placed = bound(pod(4, name="x"), facts(8, 8, name="n"), ((1,),))
    said = explain.explain(world(facts(8, 8), pods=(placed,)), placed)
    assert (said.verdict, said.owner, said.message) == ("runs", "kubelet", "has n GPU 1")


def test_before_a_pod_exists_it_may_become_one_for_either_kind_of_node() -> None:
    draft = msgspec.structs.replace(pod(6, direct=False), uid="")
    assert explain.explain(world(facts(8, name="d")), draft).verdict == "fits"
    assert explain.explain(world(facts(8, name="p", pin="plugin")), draft).verdict == "fits"
    assert explain.explain(world(facts(8, name="d")), pod(6, direct=False)).code == "NeedsPolicy"
    assert explain.explain(world(facts(4, name="d"), facts(5, name="p", pin="plugin")), draft).code == "TooLarge"


def test_the_object_has_the_keys_programs_rely_on() -> None:
    said = msgspec.to_builtins(explain.explain(*EXAMPLES["NoSingleGpu"][:2]))
    assert {"version", "verdict", "owner", "code", "message", "pod", "request", "nodes", "ways", "scheduler"} <= set(
        said
    )
    assert said["version"] == 1
    assert said["scheduler"] is None
    assert set(said["pod"]) == {"namespace", "name", "phase", "node", "priority"}
    gpu = said["nodes"][0]["gpus"][0]
    assert gpu == {"index": 0, "total": 8, "free": 0, "short": 4, "healthy": True, "pods": 1}


def ways(said: Explanation) -> list[dict[str, Any]]:
    found = msgspec.to_builtins(said.ways)
    assert isinstance(found, list)
    return found


def test_ways_out_name_what_would_help_cheapest_first() -> None:
    low = bound(pod(6, name="low", priority=-10), facts(8), ((0,),))
    said = explain.explain(world(facts(8), pods=(low,)), pod(4))
    assert ways(said) == [
        {"way": "shrink", "node": "n", "gpu": 0, "units": 2},
        {"way": "end", "node": "n", "pods": ["default/low"]},
        {"way": "evict", "node": "n", "pods": ["default/low"]},
    ]


def test_too_large_may_be_split_where_a_node_has_gpus_enough() -> None:
    said = explain.explain(world(facts(8, 8, name="a"), facts(9, name="b")), pod(12))
    assert ways(said) == [
        {"way": "shrink", "node": "b", "gpu": 0, "units": 9},
        {"way": "split", "node": "a", "units": 6, "gpus": 2},
    ]


def test_a_sick_gpu_that_would_do_is_named() -> None:
    said = explain.explain(*EXAMPLES["NoHealthyGpu"][:2])
    assert {"way": "heal", "node": "n", "gpu": 0} in ways(said)


def test_requests_are_shown_as_they_were_made() -> None:
    said = explain.explain(world(), pod(6, split=2))
    assert isinstance(pod(6, split=2).claim, Request)
    assert said.request is not None
    assert msgspec.to_builtins(said.request) == {
        "unit": None,
        "shares": [{"container": "c0", "units": 6, "gpus": 2, "whole": False}],
    }


def test_refusals_compare_by_value() -> None:
    assert Refusal("A", "a") == Refusal("A", "a")
