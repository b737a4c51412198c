"""The tool that makes memory-sized traces with ends: what it writes can be replayed and means what it says."""

import itertools
from pathlib import Path

import pytest

from gpushare.sim.reading import load
from gpushare.sim.trace import Pod
from tools import live_trace
from tools.live_trace import GIB, GPU_MEMORY_MIB, LONGEST_GAP, LONGEST_RUN

NODES = "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(
    f"n-{number:02},64000,262144,{gpus},{model}\n"
    for number, (gpus, model) in enumerate([(2, "T4"), (8, "G2"), (4, "V100M32"), (8, "G3")] * 12)
)
HEAD = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time\n"
KINDS = ((0, 0, ""), (1, 470, ""), (1, 1000, ""), (2, 1000, ""), (1, 320, "T4|G2"))
PODS = HEAD + "".join(
    f"p-{number:03},1000,2048,{gpus},{milli},{models},{number * 100},{number * 100 + 7 * (number + 1)}\n"
    for number, (gpus, milli, models) in enumerate(KINDS * 20)
)


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "pods.csv").write_text(PODS)
    (tmp_path / "nodes.csv").write_text(NODES)
    return str(tmp_path / "pods.csv"), str(tmp_path / "nodes.csv")


def made(files: tuple[str, str], capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert live_trace.main([files[0], "--nodes", files[1], "--pods", "500", *words]) == 0
    return capsys.readouterr().out


def test_what_it_writes_can_be_replayed(files: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    file = Path(files[0]).with_name("live.json")
    file.write_text(made(files, capsys))
    trace = load.trace(str(file), "")  # refuses pods that no node could take
    assert len(trace.pods) == 500
    assert len(trace.nodes) == 48 // live_trace.ONE_OF
    assert {gpu.memory_mib for node in trace.nodes for gpu in node.gpus} <= set(GPU_MEMORY_MIB.values())


def test_pods_ask_whole_gib_of_a_gpu_that_they_may_use(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    made_pods = _pods(files, 1.0, seed=3)
    assert all(pod.gpu_memory_mib % GIB == 0 for pod in made_pods)
    assert {bool(pod.gpus) for pod in made_pods if not pod.gpu_memory_mib} == {False}
    sizes = {pod.gpu_memory_mib // GIB for pod in made_pods if pod.models}
    assert sizes <= {4, 7}  # 32 % of 15,360 and of 23,028 MiB


@pytest.mark.parametrize("wanted", [0.5, 1.2])
def test_the_load_is_what_was_asked_for(files: tuple[str, str], wanted: float) -> None:
    nodes, pods = live_trace.made(load.trace(*files), wanted, seed=1, pods=500)
    asked = sum(pod.gpus * pod.gpu_memory_mib * (pod.duration or 0.0) for pod in pods)
    capacity = sum(gpu.memory_mib for node in nodes for gpu in node.gpus)
    assert asked / capacity / pods[-1].arrival == pytest.approx(wanted, rel=0.02)


def test_a_seed_makes_the_same_trace_again_and_another_seed_another(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    first = made(files, capsys, "--seed", "1")
    assert made(files, capsys, "--seed", "1") == first
    assert made(files, capsys, "--seed", "2") != first


def test_long_runs_and_long_gaps_are_cut_and_missing_times_are_those_of_another_pod(tmp_path: Path) -> None:
    rows = ["a,1000,2048,1,500,,0,60", "b,1000,2048,1,500,,100000,9000000", "c,1000,2048,1,500,,100001,"]
    (tmp_path / "pods.csv").write_text(HEAD + "\n".join(rows) + "\n")
    (tmp_path / "nodes.csv").write_text(NODES)
    trace = load.trace(str(tmp_path / "pods.csv"), str(tmp_path / "nodes.csv"))
    pods = live_trace.made(trace, 1.0, seed=1, pods=300)[1]
    assert {pod.duration for pod in pods} == {60.0, LONGEST_RUN}
    gaps = sorted([after.arrival - pod.arrival for pod, after in itertools.pairwise(pods)])
    assert gaps[-1] / gaps[0] == pytest.approx(LONGEST_GAP, rel=0.1)


def test_a_trace_without_times_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pods.csv").write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1000,2048,1,500\n")
    (tmp_path / "nodes.csv").write_text(NODES)
    assert live_trace.main([str(tmp_path / "pods.csv"), "--nodes", str(tmp_path / "nodes.csv")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: no pod of this trace has times\n")


def _pods(files: tuple[str, str], wanted: float, seed: int) -> tuple[Pod, ...]:
    return live_trace.made(load.trace(*files), wanted, seed, pods=500)[1]
