"""Why this GPU, in `why`: with a policy that gives points, each point is told."""

from typing import Any

from tests.ctl.why.cluster import Cluster, ask, world

FRESH = "2026-11-15T12:29:56Z"
POD = """
kind: Pod
metadata: {name: nb-6}
spec: {containers: [{name: main, resources: {limits: {aliyun.com/gpu-mem: 100}}}]}
"""


def measured(**busy: int) -> Cluster:
    """By node, with how much percent its GPUs are in use."""
    cluster = world()
    for node, percent in busy.items():
        name = node.replace("_", "-")
        gpus = [
            {"index": i, "uuid": f"GPU-{name}-{i}", "usedMiB": 0, "utilization": percent, "temperature": 40,
             "temperatureLimit": 90, "powerWatts": 30, "powerLimitWatts": 300}
            for i in range(2)
        ]  # fmt: skip
        cluster.gpunodes[name] = {"metadata": {"name": name}, "status": {"sampledAt": FRESH, "gpus": gpus}}
    return cluster


def why(cluster: Cluster, text: str = POD, **options: Any) -> Any:
    return ask(cluster, filename="-", stdin=text, **options)


def test_points_are_told_below_the_place_and_measured_figures_decide() -> None:
    answer = why(measured(gpu_a=90, gpu_b=0, gpu_c=90), policy="metric")
    assert answer.out.splitlines() == [
        "nb-6 (stdin) would fit now: gpu-b GPU 1, 678 of 11178 MiB free, 578 left after it.",
        "  points by policy metric",
        "    gpu-b   65  GPU 1: 65 (memory 1, utilization 25, temperature 10, power 9, shares 10, over-use 10)",
        "    gpu-a   41  GPU 0: 41 (memory 0, utilization 2, temperature 10, power 9, shares 10, over-use 10)",
        "    gpu-c   35  GPU 1: 35 (memory 4, utilization 2, temperature 10, power 9, shares 0, over-use 10)",
    ]


def test_another_gpu_is_chosen_if_another_is_idle() -> None:
    assert "would fit now: gpu-c GPU" in why(measured(gpu_a=100, gpu_b=100, gpu_c=0), policy="metric").out


def test_a_pods_own_policy_wins_and_points_of_nodes_are_told_with_their_weight() -> None:
    pod = POD.replace("name: nb-6}", "name: nb-6, annotations: {gpushare.io/policy: keti}}")
    answer = why(measured(gpu_a=0), text=pod, policy="binpack", output="wide")
    assert "points by policy keti" in answer.out
    assert "0.7 × " in answer.out
    assert "LeastAllocatedPodGPU" in answer.out
    assert "BalancedResourceAllocation" in answer.out


def test_programs_get_the_terms() -> None:
    answer = why(measured(gpu_a=0), policy="metric", output="json").json["items"][0]
    assert answer["policy"] == {"name": "metric"}
    (chosen,) = (gpu for gpu in answer["scores"][0]["gpus"] if gpu.get("chosen"))
    assert chosen["points"] == sum(chosen["terms"].values())


def test_without_points_nothing_is_read_or_told() -> None:
    answer = why(measured(gpu_a=0))
    assert "points" not in answer.out


def test_on_a_narrow_terminal_points_stay_beside_their_node() -> None:
    lines = why(measured(gpu_a=90, gpu_b=0, gpu_c=90), policy="metric", width=80).out.splitlines()
    assert lines[3:5] == [
        "    gpu-b   65  GPU 1: 65 (memory 1, utilization 25, temperature 10, power 9,",
        "                shares 10, over-use 10)",
    ]
