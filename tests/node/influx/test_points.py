"""Which points are written: KETI's names, KETI's order of columns, and tags that keep points apart."""

from gpushare.gpu.sample import Process, Sample
from gpushare.node.influx import line
from gpushare.node.influx.line import Point
from gpushare.node.influx.node_figures import NodeFigures
from gpushare.node.influx.points import points
from gpushare.node.usage.model import ContainerUse, GpuUse, Usage

GIB = 1 << 30
FIGURES = NodeFigures(1500, 8 * GIB, 20 * GIB, 111, 222)
SAMPLE = Sample(
    "GPU-a", 0, memory_total=16 * GIB, memory_used=2 * GIB, memory_free=14 * GIB, gpu_util=37, temperature=54,
    power=61500, processes=(Process(4001, GIB, 30), Process(4002, None, None)),
)  # fmt: skip
MAIN = ContainerUse("team", "train-0", "uid", "main", 2 * GIB, used=GIB, pids=(4001,))
GPUS = (
    GpuUse(0, "GPU-a", "Tesla T4", 16 * GIB, 0, sample=SAMPLE, containers=(MAIN,)),
    GpuUse(1, "GPU-b", "Tesla T4", 16 * GIB, 0, sample=Sample("GPU-b", 1)),
)
USAGE = Usage("node-1", GPUS, sampled_at=100.0)
# KETI's scheduler reads these columns by position.
MULTIMETRIC = ["last_Count", "last_NodeCPU", "last_NodeMemory", "last_NodeName", "last_uuid"]
GPUMETRIC = ["last_GPUName", "last_Index", "last_Power", "last_memory(free)", "last_memory(total)",
             "last_memory(used)", "last_temperature"]  # fmt: skip


def made(usage: Usage = USAGE) -> list[Point]:
    return points(usage, FIGURES, 1000)


def of(measurement: str, usage: Usage = USAGE) -> list[Point]:
    return [point for point in made(usage) if point.measurement == measurement]


def columns(point: Point) -> list[str]:
    """As InfluxDB names and sorts them for `SELECT last(*)`."""
    return sorted(f"last_{name}" for name in point.fields)


def test_the_columns_of_a_node_are_where_keti_reads_them() -> None:
    (node,) = of("multimetric")
    assert columns(node) == MULTIMETRIC


def test_the_columns_of_a_gpu_are_where_keti_reads_them_and_ours_come_after() -> None:
    assert columns(of("gpumetric")[0])[: len(GPUMETRIC)] == GPUMETRIC


def test_a_node_is_written_with_its_gpus_as_go_prints_a_list() -> None:
    (node,) = of("multimetric")
    assert line.encode(node) == (
        'multimetric,node=node-1 Count=2i,NodeCPU=1500i,NodeMemory=8589934592i,NodeName="node-1",'
        'uuid="[GPU-a GPU-b]" 1000'
    )


def test_storage_and_network_are_in_a_measurement_of_their_own() -> None:
    (node,) = of("nodemetric")
    assert (node.fields["NodeStorage"], node.fields["NodeNetworkRX"], node.fields["NodeNetworkTX"]) == (
        20 * GIB, 111, 222
    )  # fmt: skip


def test_numbers_of_a_gpu_are_numbers() -> None:
    assert line.encode(of("gpumetric")[0]) == (
        'gpumetric,UUID=GPU-a,node=node-1 GPUName="Tesla T4",Index=0i,Power=61500i,memory(free)=15032385536i,'
        "memory(total)=17179869184i,memory(used)=2147483648i,temperature=54i,utilization=37i 1000"
    )


def test_what_a_gpu_does_not_tell_is_no_field() -> None:
    assert line.encode(of("gpumetric")[1]) == 'gpumetric,UUID=GPU-b,node=node-1 GPUName="Tesla T4",Index=1i 1000'


def test_a_gpu_without_figures_has_no_point_so_that_no_old_figure_looks_fresh() -> None:
    silent = Usage("node-1", (GpuUse(0, "GPU-a", "Tesla T4", GIB, 0),), failure="the driver has not answered")
    assert {point.measurement for point in made(silent)} == {"multimetric", "nodemetric"}


def test_processes_of_one_gpu_in_one_second_are_different_series() -> None:
    first, second = of("gpumap")
    assert line.encode(first) == (
        "gpumap,UUID=GPU-a,container=main,namespace=team,node=node-1,pid=4001,pod=train-0 "
        "gpu_mps_count=2i,gpu_mps_index=1i,gpu_mps_memory=1073741824i,gpu_mps_pid=4001i,gpu_mps_sm=30i 1000"
    )
    assert line.encode(second) == (
        "gpumap,UUID=GPU-a,node=node-1,pid=4002 gpu_mps_count=2i,gpu_mps_index=2i,gpu_mps_pid=4002i 1000"
    )


def test_no_two_points_of_two_nodes_in_one_second_are_the_same_series() -> None:
    both = [*made(), *made(Usage("node-2", GPUS))]
    assert len({(point.measurement, tuple(sorted(point.tags.items()))) for point in both}) == len(both)
