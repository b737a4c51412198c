"""Why a pod waits: every reason has an example here, with the words people see."""

from typing import Any

import msgspec
import pytest

from gpushare.core.explain import condition, event_texts, verdict
from gpushare.core.explain.report import Explanation
from gpushare.core.facts.model import PodFacts, Refusal, Request
from gpushare.core.facts.policies import POLICIES
from gpushare.core.ledger import ledger
from gpushare.core.ledger.holding import Kept
from tests.core import codes
from tests.support import builders
from tests.support.builders import bound, container, facts, pod


def world(*nodes: Any, pods: tuple[PodFacts, ...] = ()) -> ledger.Ledger:
    made = builders.ledger(*nodes)
    for one in pods:
        made.observe(one, 0.0)
    return made


FULL = facts(8, name="n"), bound(pod(8, name="full"), facts(8, name="n"), ((0,),))
SLOTS = facts(8, slots=1)
SLOT_TAKEN = bound(pod(mps=1, slot_memory="1Mi", name="slot"), SLOTS, ((0,),))
PLUGIN = facts(8, 8, pin="plugin")
PLUGIN_FULL = tuple(bound(pod(8, name=f"f{i}", direct=False), PLUGIN, ((i,),)) for i in range(2))
SPLIT_UNASSIGNED = bound(pod(4, split=2, direct=False, name="half"), PLUGIN, ((0, 1),))


def _rested() -> ledger.Ledger:
    made = world(facts(8), pods=(bound(pod(4, name="r"), facts(8), ((0,),)),))
    made.observe(pod(4, name="r", on="n", phase="Failed", reason="UnexpectedAdmissionError"), 0.0)
    return made


def _kept() -> ledger.Ledger:
    made = world(facts(8))
    made.keep(Kept(pod(7, name="large"), "n", (("GPU-n-0",),), 0.0))
    return made


def _reserved() -> ledger.Ledger:
    made = world(facts(8, reserved="for Kim"))
    made.respect_reservations(True)
    return made


EXAMPLES: dict[str, tuple[ledger.Ledger, PodFacts, str]] = {
    "NoSingleGpu": (world(FULL[0], pods=FULL[1:]), pod(4), "no single GPU has 4 MiB free"),
    "NoHealthyGpu": (world(facts(8, 4, unhealthy=[0])), pod(6), "no healthy GPU has 6 MiB free"),
    "NoGpusEach": (world(facts(8, 8), pods=(bound(pod(8), facts(8, 8), ((0,),)),)), pod(8, split=2),
                   "no 2 GPUs have 4 MiB free each"),
    "NoGpusFor": (world(facts(8, 4)), pod(6, 5), "no GPUs for containers of 6 + 5 MiB"),
    "NoWholeGpu": (world(FULL[0], pods=FULL[1:]), pod(whole=1), "no GPU is wholly free"),
    "NoSlot": (world(SLOTS, pods=(SLOT_TAKEN,)), pod(mps=1, slot_memory="1Mi"), "no single GPU has a free MPS slot"),
    "NoMpsMemory": (world(facts(8, slots=2), pods=FULL[1:]), pod(mps=1, slot_memory="2Mi"),
                    "no GPU with a free MPS slot has 2 MiB free"),
    "NoMps": (world(facts(8)), pod(mps=1), "node(s) that sell no MPS slots"),
    "OnlyMps": (world(facts(8, slots=2, only_mps=True)), pod(4), "node(s) whose GPUs serve MPS clients only"),
    "MpsDown": (world(facts(8, slots=2, mps_down="it hangs")), pod(mps=1), "node(s) whose MPS daemon does not work"),
    "NotNvidia": (world(facts(8)), pod(nvidia=1), "node(s) that do not sell nvidia.com/gpu through gpushare"),
    "NoInitGpu": (world(PLUGIN, pods=PLUGIN_FULL), pod(2, init=[6], direct=False),
                  "no single GPU for init and app containers (6 MiB)"),
    "OverLimit": (world(facts(80, pin="plugin", limit=50)), pod(60, direct=False),
                  "node(s) that allow less than 60 MiB per container"),
    "TooLarge": (world(facts(8)), pod(9), "no GPU is as large as 9 MiB"),
    "TooFewGpus": (world(facts(8)), pod(whole=2), "node(s) with fewer than 2 GPUs"),
    "NoSharedGpu": (world(), pod(4), "node(s) without a shared GPU"),
    "CountsOtherwise": (world(facts(8, unit="GiB")), pod(4, unit="MiB"), "node(s) whose GPU memory unit is GiB"),
    "OneContainer": (world(facts(8, 8, pin="aliyun")), pod(4, 4, direct=False),
                     "node(s) whose plugin serves one container on one GPU"),
    "PinsByPlugin": (world(PLUGIN), pod(4), "node(s) that pin by device plugin"),
    "NeedsPolicy": (world(facts(8)), pod(4, direct=False), "node(s) that need gpushare's admission policy"),
    "NvidiaToo": (world(facts(8, nvidia=1)), pod(4), "node(s) whose GPUs NVIDIA's plugin also gives out"),
    "SellsGpus": (world(facts(8, pin="nvidia")), pod(4), "node(s) that sell only whole GPUs or replicas"),
    "PluginDown": (world(facts(8, state="draining")), pod(4), "node(s) whose GPU plugin is down"),
    "Reserved": (_reserved(), pod(4), "node(s) that are reserved"),
    "OtherNode": (world(facts(8)), pod(4, only="m"), "node(s) other than the one its annotation nodeName names"),
    "JustRefused": (_rested(), pod(4), "node(s) that refused this request just now"),
    "LikeUnderWay": (world(PLUGIN, pods=(SPLIT_UNASSIGNED,)), pod(4, direct=False),
                     "node(s) still starting an identical GPU request"),
    "TooHard": (world(facts(800)), pod(*[1] * 201), "placing 201 containers takes too long to work out"),
    "KeptForOther": (_kept(), pod(4),
                     "no single GPU has 4 MiB free besides what is kept for a pod that has waited too long"),
    "NotMemory": (world(), pod(containers=[container("a", "4Gi")]), "aliyun.com/gpu-mem counts MiB, not bytes"),
    "NotWhole": (world(), pod(containers=[container("a", "-1")]), "aliyun.com/gpu-mem is not a whole number"),
    "CountNotWhole": (world(), pod(4, split="x"), "aliyun.com/gpu-count is not a whole number"),
    "NotDivisible": (world(), pod(5, split=2), "5 MiB cannot be split evenly over 2 GPUs"),
    "BothLimits": (world(), pod(containers=[container("a", 4, whole=1)]),
                   "aliyun.com/gpu-mem and aliyun.com/gpu-count on one container"),
    "NotPercent": (world(), pod(mps=1, notes={"gpushare.io/mps-threads": "101"}),
                   "gpushare.io/mps-threads is not a whole number from 1 to 100"),
    "NotBytes": (world(), pod(mps=1, slot_memory="abc"), "GPUrequest is not a number of bytes up to 1Ti"),
    "UnknownPolicy": (world(), pod(4, policy="x"), f"gpushare.io/policy is not {' or '.join(POLICIES)}"),
    "UnknownUnit": (world(), pod(4, unit="x"), "gpushare.io/memory-unit is not MiB or GiB"),
}  # fmt: skip


SLOT_SENTENCES: list[tuple[ledger.Ledger, PodFacts, str, str]] = [
    (world(facts(8, 8, slots=1), pods=(bound(pod(mps=1), facts(8, 8, slots=1), ((0,),)),)), pod(mps=2), "NoSlot",
     "no 2 GPUs have a free MPS slot each"),
    (world(facts(8, 8, slots=1), pods=(bound(pod(8), facts(8, 8), ((0,),)),)), pod(mps=2, slot_memory="1Mi"),
     "NoMpsMemory", "no 2 GPUs with a free MPS slot have 1 MiB free each"),
    (world(facts(8, 8, slots=1), pods=(bound(pod(8), facts(8, 8), ((0,),)),)), pod(mps=2), "NoMpsMemory",
     "no 2 GPUs with a free MPS slot have their part of the memory free"),
    (world(facts(8, slots=1), pods=FULL[1:]), pod(mps=1), "NoMpsMemory",
     "no GPU with a free MPS slot has its part of the memory free"),
    (world(SLOTS, pods=(SLOT_TAKEN,)), pod(2, mps=1, slot_memory="1Mi"), "NoSlot",
     "no GPUs with free MPS slots for containers of 2 MiB + an MPS share of 1 MiB"),
    (world(SLOTS, pods=(SLOT_TAKEN,)), pod(2, mps=1), "NoGpusFor", "no GPUs for containers of 2 MiB + an MPS share"),
    (world(facts(8, slots=3), pods=FULL[1:]), pod(2, mps=1, slot_memory="3Mi"), "NoGpusFor",
     "no GPUs for containers of 2 MiB + an MPS share of 3 MiB"),
    (world(facts(8, slots=1)), pod(containers=[container("a", mps=1), container("b", mps=1)], slot_memory="1Mi"),
     "NoSlot", "no GPUs with free MPS slots for containers of an MPS share of 1 MiB + an MPS share of 1 MiB"),
    (world(facts(12, 8, slots=1), pods=(bound(pod(mps=1), facts(12, 8, slots=4), ((0,),)),)),
     pod(mps=2, slot_memory="9Mi"), "NoMpsMemory", "no 2 GPUs with a free MPS slot have 9 MiB free each"),
    (world(facts(8, slots=1, unhealthy=[0])), pod(mps=1), "NoHealthyGpu", "no single healthy GPU has a free MPS slot"),
    (world(facts(8, slots=2)), pod(mps=1, slot_memory="9Mi"), "TooLarge", "no GPU is as large as 9 MiB"),
    (world(facts(8, slots=2)), pod(mps=1, direct=False), "NeedsPolicy",
     "node(s) that need gpushare's admission policy"),
    (world(facts(9, name="p", pin="plugin")), pod(mps=1, direct=False), "NoMps", "node(s) that sell no MPS slots"),
    (world(facts(9, 9, name="p", pin="aliyun")), pod(mps=1, direct=False), "NoMps", "node(s) that sell no MPS slots"),
]  # fmt: skip


@pytest.mark.parametrize(("state", "asked", "code", "message"), SLOT_SENTENCES)
def test_a_refusal_says_whether_slots_or_memory_are_short(
    state: ledger.Ledger, asked: PodFacts, code: str, message: str
) -> None:
    said = verdict.explain(state, asked)
    assert (said.code, said.message) == (code, message)
    assert condition.refusal_in(f"0/1 nodes are available: 1 {message}.") == message
    assert not set(",.") & set(message.replace("nvidia.com", ""))


@pytest.mark.parametrize("code", EXAMPLES)
def test_every_reason_is_given_in_its_words(code: str) -> None:
    state, asked, message = EXAMPLES[code]
    said = verdict.explain(state, asked)
    assert (said.code, said.message) == (code, message)


def test_no_reason_is_without_an_example() -> None:
    assert codes.every() == set(EXAMPLES)


@pytest.mark.parametrize("code", EXAMPLES)
def test_events_are_short_and_begin_with_the_reason(code: str) -> None:
    state, asked, message = EXAMPLES[code]
    said = event_texts.warning(state, asked)
    assert said is not None
    assert len(said[1]) <= 200
    if code != "NoSharedGpu":
        assert said[1].lower().startswith(message.lower())


def test_a_pod_that_fits_gets_no_warning() -> None:
    assert event_texts.warning(world(facts(8)), pod(4)) is None
    assert verdict.explain(world(facts(8)), pod(4)).verdict == "fits"


def test_a_pod_that_asks_nothing_fits() -> None:
    said = verdict.explain(world(), pod(containers=[container("a")]))
    assert (said.verdict, said.code, said.request) == ("fits", "NoRequest", None)


def test_a_bound_pod_says_where_it_is_and_whose_turn_it_is() -> None:
    placed = bound(pod(4, name="x"), facts(8, 8, name="n"), ((1,),))
    said = verdict.explain(world(facts(8, 8), pods=(placed,)), placed)
    assert (said.verdict, said.owner, said.message) == ("runs", "kubelet", "has n GPU 1")


def test_a_pod_is_judged_as_it_is_given_whether_it_exists_or_not() -> None:
    """Both kinds of nodes in one cluster: which of them take it was decided by admission, and by nothing here."""
    nodes = facts(40, name="d"), facts(11, name="p", pin="plugin")
    for uid in ("", "uid"):
        plugin = msgspec.structs.replace(pod(20, direct=False), uid=uid)
        direct = msgspec.structs.replace(pod(20), uid=uid)
        assert verdict.explain(world(*nodes), plugin).code == "TooLarge"
        assert verdict.explain(world(*nodes), direct).ways[0].node == "d"
        assert verdict.explain(world(nodes[0]), plugin).code == "NeedsPolicy"
        assert verdict.explain(world(nodes[1]), direct).code == "PinsByPlugin"


def test_the_object_has_the_keys_programs_rely_on() -> None:
    said = msgspec.to_builtins(verdict.explain(*EXAMPLES["NoSingleGpu"][:2]))
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
    said = verdict.explain(world(facts(8), pods=(low,)), pod(4))
    held = {"pod": "default/low", "units": 6, "priority": -10, "gpu": 0}
    assert ways(said) == [
        {"way": "shrink", "node": "n", "gpu": 0, "units": 2},
        {"way": "end", "node": "n", "gpu": 0, "pods": ["default/low"], "holders": [held]},
        {"way": "evict", "node": "n", "gpu": 0, "pods": ["default/low"], "holders": [held]},
    ]


def test_too_large_may_be_split_where_a_node_has_gpus_enough() -> None:
    said = verdict.explain(world(facts(8, 8, name="a"), facts(9, name="b")), pod(12))
    assert ways(said) == [
        {"way": "shrink", "node": "b", "gpu": 0, "units": 9},
        {"way": "split", "node": "a", "units": 6, "gpus": 2},
    ]


def test_an_unhealthy_gpu_that_would_do_is_named() -> None:
    said = verdict.explain(*EXAMPLES["NoHealthyGpu"][:2])
    assert {"way": "heal", "node": "n", "gpu": 0} in ways(said)


def test_an_unhealthy_gpu_is_named_only_if_its_return_would_be_enough() -> None:
    node = facts(8, 8, 8, unhealthy=[0, 1])
    there = bound(pod(6), node, ((0,),)), bound(pod(6), node, ((2,),))
    healing = [way for way in ways(verdict.explain(world(node, pods=there), pod(6))) if way["way"] == "heal"]
    assert healing == [{"way": "heal", "node": "n", "gpu": 1}]
    said = verdict.explain(world(facts(8, 8, 2, unhealthy=[0, 1])), pod(12, split=2))
    assert (said.code, ways(said)) == ("NoHealthyGpu", [{"way": "heal", "node": "n"}])


def test_a_pod_of_which_nobody_knows_the_gpu_is_on_none() -> None:
    stray = pod(6, name="stray", on="n", direct=False, priority=-1)
    found = [way for way in ways(verdict.explain(world(facts(8, 8), pods=(stray,)), pod(4))) if "pods" in way]
    assert [(way["way"], "gpu" in way) for way in found] == [("end", False), ("evict", False)]


def test_eviction_is_looked_for_on_every_node_as_kube_scheduler_does() -> None:
    nodes = [facts(8, name=f"n{i}") for i in range(6)]
    there = [bound(pod(5 + i // 2, name=f"p{i}", priority=-(i == 4)), n, ((0,),)) for i, n in enumerate(nodes)]
    found = ways(verdict.explain(world(*nodes, pods=tuple(there)), pod(6)))
    assert [(way["node"], way["pods"]) for way in found if way["way"] == "evict"] == [("n4", ["default/p4"])]


def test_on_a_gpu_that_is_more_than_full_more_has_to_come_free() -> None:
    strays = pod(6, name="a", on="n", direct=False), pod(6, name="b", on="n", direct=False)
    (gpu,) = verdict.explain(world(facts(8), pods=strays), pod(4)).nodes[0].gpus
    assert (gpu.free, gpu.short) == (0, 8)
    (gpu,) = verdict.explain(world(facts(8), pods=(pod(whole=1, on="n", direct=False),)), pod(4)).nodes[0].gpus
    assert (gpu.free, gpu.short) == (0, 4)


def test_a_gpu_is_named_only_if_it_is_the_same_whoever_ends() -> None:
    node = facts(8, 8)
    there = tuple(bound(pod(6, name=f"f{i}"), node, ((i,),)) for i in range(2))
    (end,) = [way for way in ways(verdict.explain(world(node, pods=there), pod(4))) if way["way"] == "end"]
    assert "gpu" not in end
    assert [holder["gpu"] for holder in end["holders"]] == [0, 1]
    both = bound(pod(12, name="both", split=2), node, ((0, 1),))
    (end,) = [way for way in ways(verdict.explain(world(node, pods=(both,)), pod(4))) if way["way"] == "end"]
    assert end["gpu"] == 0


def test_more_pods_than_are_named_are_counted() -> None:
    node = facts(20)
    there = tuple(bound(pod(1, name=f"p{i:02}"), node, ((0,),)) for i in range(20))
    (end,) = [way for way in ways(verdict.explain(world(node, pods=there), pod(1))) if way["way"] == "end"]
    assert (end["count"], len(end["pods"]), len(end["holders"])) == (20, 16, 16)


def test_who_is_leaving_already_is_waited_for() -> None:
    node = facts(8)
    going = msgspec.structs.replace(bound(pod(6, name="going"), node, ((0,),)), terminating=True)
    said = ways(verdict.explain(world(node, pods=(going,)), pod(4)))
    assert [way["way"] for way in said] == ["shrink", "wait"]
    assert said[1]["pods"] == ["default/going"]


def test_a_node_with_room_that_wants_to_be_left_alone_is_waited_for() -> None:
    """Nobody has to end for that."""
    for code in ("JustRefused", "LikeUnderWay"):
        state, asked, _ = EXAMPLES[code]
        assert ways(verdict.explain(state, asked)) == [{"way": "wait", "node": "n"}]


def test_memory_that_is_free_now_on_two_gpus_is_a_way() -> None:
    said = ways(verdict.explain(world(facts(8, 4, 4, unhealthy=[0])), pod(6)))
    assert {"way": "split", "node": "n", "units": 3, "gpus": 2} in said
    full = facts(8, 8), bound(pod(12, split=2), facts(8, 8), ((0, 1),))
    assert not [way for way in ways(verdict.explain(world(full[0], pods=full[1:]), pod(6))) if way["way"] == "split"]


def test_a_node_that_only_an_unhealthy_gpu_keeps_from_fitting_is_the_closest() -> None:
    nodes = facts(8, 1, unhealthy=[0], name="unhealthy"), facts(9, name="full")
    said = verdict.explain(world(*nodes, pods=(bound(pod(4), nodes[1], ((0,),)),)), pod(6))
    assert (said.code, [node.name for node in said.nodes]) == ("NoHealthyGpu", ["unhealthy", "full"])
    assert said.nodes[0].gpus[-1].healthy is False


def test_why_a_gpu_is_unhealthy_is_told() -> None:
    said = verdict.explain(world(facts(8, unhealthy=[0], pin="aliyun")), pod(6, direct=False))
    assert [(gpu.healthy, gpu.why) for gpu in said.nodes[0].gpus] == [(False, "listed")]
    assert {"way": "heal", "node": "n", "gpu": 0, "why": "listed"} in ways(said)


BOTH = facts(8, name="a"), facts(6, name="b")


def test_ways_are_not_looked_for_where_kube_scheduler_would_not_send_it() -> None:
    held = tuple(bound(pod(node.gpus[0].total - 2, name=node.name), node, ((0,),)) for node in BOTH)
    said = verdict.explain(world(*BOTH, pods=held), pod(4), barred={"a"})
    assert said.verdict == "refused"
    assert {way["node"] for way in ways(said)} == {"b"}
    assert ways(verdict.explain(world(*BOTH, pods=held), pod(4), barred={"a", "b"})) == []


def test_a_pod_that_kube_scheduler_keeps_off_every_node_with_room_is_refused_by_it() -> None:
    said = verdict.explain(world(*BOTH), pod(4), barred={"a", "b"})
    assert (said.verdict, said.owner, said.code, said.ways) == ("refused", "kube-scheduler", "KeptOff", [])
    assert said.message == "a GPU 0 has room, but kube-scheduler keeps the pod off a and b"
    two = verdict.explain(world(*BOTH, facts(9, 9, name="c")), pod(4, 4), barred={"a", "b", "c"})
    assert two.message == "c has room, but kube-scheduler keeps the pod off c and a"


def test_where_it_would_go_is_where_the_extender_would_send_it() -> None:
    for policy, node in (("binpack", "b"), ("spread", "a")):
        (way,) = ways(verdict.explain(world(*BOTH), pod(4), policy=policy))
        total = {"a": 8, "b": 6}[node]
        spot = {"gpu": 0, "units": 4, "free": total, "total": total, "containers": ["c0"]}
        assert way == {"way": "wait", "node": node, "spots": [spot]}
        assert ways(verdict.explain(world(*BOTH), pod(4, policy=policy)))[0]["node"] == node
    assert ways(verdict.explain(world(*BOTH), pod(4), barred={"b"}))[0]["node"] == "a"


def test_only_the_nodes_that_are_asked_about_are_looked_at() -> None:
    said = verdict.explain(world(*BOTH), pod(8), among=["b"])
    assert (said.verdict, [node.name for node in said.nodes]) == ("never", ["b"])


def test_a_bound_pod_says_what_it_has_and_who_is_beside_it() -> None:
    node = facts(8, 8)
    one = bound(pod(4, name="one", split=2), node, ((0, 1),))
    two, three = bound(pod(1, name="two"), node, ((0,),)), bound(pod(3, name="three"), node, ((0,),))
    said = verdict.explain(world(node, pods=(one, two, three)), one)
    assert [(spot.gpu, spot.units, spot.free, spot.containers) for spot in said.has] == [
        (0, 2, 2, ["c0"]), (1, 2, 6, ["c0"])
    ]  # fmt: skip
    assert [(holder.pod, holder.units, holder.gpu) for holder in said.beside] == [
        ("default/three", 3, 0), ("default/two", 1, 0)
    ]  # fmt: skip


def test_a_pod_that_ended_has_its_phase() -> None:
    said = verdict.explain(world(), pod(4, on="n", phase="Succeeded"))
    assert (said.verdict, said.code, said.message) == ("runs", "Ended", "has ended (Succeeded)")


def test_a_bound_pod_is_not_called_invalid() -> None:
    said = verdict.explain(world(facts(8)), pod(containers=[container("a", "4Gi")], on="n"))
    assert (said.verdict, said.detail) == ("runs", "aliyun.com/gpu-mem counts MiB, not bytes")


def test_how_many_have_a_lower_priority_is_counted() -> None:
    node = facts(8)
    there = tuple(bound(pod(1, name=f"p{i}", priority=i), node, ((0,),)) for i in range(4))
    assert verdict.explain(world(node, pods=there), pod(8, priority=2)).nodes[0].lower == 2


@pytest.mark.parametrize("code", EXAMPLES)
def test_our_words_are_found_in_kube_schedulers(code: str) -> None:
    message = EXAMPLES[code][2]
    for text in (
        message,
        f"0/5 nodes are available: 3 Insufficient cpu, 2 {message}.",
        f"0/5 nodes are available: 5 {message}. preemption: 0/5 nodes are available: 5 Preemption is not helpful.",
        f"0/5 nodes are available: 2 {message}, 3 node(s) had untolerated taint(s).",
    ):
        assert condition.refusal_in(text) == message
    assert not condition.only_totals(f"0/5 nodes are available: 3 Insufficient aliyun.com/gpu-mem, 2 {message}.")


@pytest.mark.parametrize(
    "message",
    [
        "node(s) that count in GiB",
        "node(s) that NVIDIA's plugin also hands out",
        "node(s) with a like request under way",
        "no single GPU has 4 MiB free beside what is kept for a pod whose turn it is",
        "aliyun.com/gpu-mem and aliyun.com/gpu-count on one container",
        "gpushare.io/policy is not binpack or spread or keti or metric",
    ],
)
def test_the_words_of_an_older_extender_are_found_too(message: str) -> None:
    assert condition.refusal_in(f"0/5 nodes are available: 2 {message}, 3 Insufficient cpu.") == message


def test_other_words_are_not_ours() -> None:
    for text in (
        "",
        "0/3 nodes are available: 3 Insufficient cpu.",
        "no single GPU",
        "said: no single GPU has 1 MiB free",
    ):
        assert condition.refusal_in(text) == ""
        assert not condition.only_totals(text)
    assert condition.only_totals("0/3 nodes are available: 3 Insufficient aliyun.com/gpu-mem.")
    assert condition.only_totals(
        "0/3 nodes are available: 1 Insufficient aliyun.com/gpu-count, 3 Insufficient aliyun.com/gpu-mem. x"
    )
    assert not condition.only_totals("0/3 nodes are available: 1 Insufficient cpu, 3 Insufficient aliyun.com/gpu-mem.")


def test_requests_are_shown_as_they_were_made() -> None:
    said = verdict.explain(world(), pod(6, split=2))
    assert isinstance(pod(6, split=2).request, Request)
    assert said.request is not None
    assert msgspec.to_builtins(said.request) == {
        "unit": None,
        "shares": [{"container": "c0", "units": 6, "gpus": 2, "whole": False}],
    }


def test_refusals_compare_by_value() -> None:
    assert Refusal("A", "a") == Refusal("A", "a")
