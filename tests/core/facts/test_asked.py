"""CPU and memory that a pod asks of its node."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from gpushare.core.facts import intree, objects
from gpushare.core.facts.packing.asked import cpu_and_memory

AMOUNTS: st.SearchStrategy[objects.Quantity] = st.sampled_from(
    ["100m", "1", "1500m", "2.5", "0", "64Mi", "1Gi", "1500M", "3", 2, "1e3", "nonsense", "-1"]
)
RESOURCES = st.none() | st.dictionaries(st.sampled_from(["cpu", "memory"]), AMOUNTS)


@st.composite
def containers(draw: st.DrawFn) -> objects.Container:
    needs = objects.ResourceNeeds(draw(RESOURCES), draw(RESOURCES))
    return objects.Container("c", draw(st.sampled_from([None, "Always"])), draw(st.sampled_from([None, needs])))


def asking(cpu: str, memory: str, *, sidecar: bool = False) -> objects.Container:
    needs = objects.ResourceNeeds(requests={"cpu": cpu, "memory": memory})
    return objects.Container("c", "Always" if sidecar else None, needs)


def of(*apps: objects.Container, inits: Sequence[objects.Container] = ()) -> tuple[int, int]:
    return cpu_and_memory(objects.PodSpec(containers=list(apps), init_containers=list(inits)))


def test_a_pod_asks_what_its_containers_ask_together() -> None:
    assert of(asking("500m", "1Gi"), asking("2", "512Mi")) == (2500, 1536)


def test_a_pod_that_asks_nothing_takes_nothing() -> None:
    assert of(objects.Container("c")) == (0, 0)
    assert cpu_and_memory(objects.PodSpec()) == (0, 0)


def test_a_limit_counts_where_no_request_is_written() -> None:
    limited = objects.Container("c", None, objects.ResourceNeeds({"cpu": "2", "memory": "1Gi"}, {"cpu": "1"}))
    assert of(limited) == (1000, 1024)


def test_memory_is_rounded_up_once_for_the_whole_pod() -> None:
    assert of(asking("1", "1"), asking("1", "1")) == (2000, 1)


def test_the_largest_init_container_counts_if_it_asks_more_than_the_others_together() -> None:
    assert of(asking("1", "1Gi"), inits=[asking("4", "512Mi"), asking("2", "3Gi")]) == (4000, 3072)


def test_a_sidecar_runs_beside_what_starts_after_it() -> None:
    assert of(asking("1", "1Gi"), inits=[asking("1", "1Gi", sidecar=True), asking("3", "1Gi")]) == (4000, 2048)


def test_the_overhead_of_a_runtime_class_is_added() -> None:
    spec = objects.PodSpec(containers=[asking("1", "1Gi")], overhead={"cpu": "250m", "memory": "120Mi"})
    assert cpu_and_memory(spec) == (1250, 1144)


def test_an_endless_amount_is_nothing_and_a_huge_one_is_bounded() -> None:
    assert of(asking("9" * 100_000, "1Gi")) == (0, 1024)
    assert of(asking("1e999", "0"))[0] < 1 << 62


@given(st.lists(containers(), max_size=3), st.lists(containers(), max_size=3))
def test_it_is_what_kube_scheduler_counts(apps: list[objects.Container], inits: list[objects.Container]) -> None:
    pod = objects.Pod(spec=objects.PodSpec(containers=apps, init_containers=inits))
    amounts = [amount for c in (*apps, *inits) if c.resources for part in (c.resources.limits, c.resources.requests)
               for amount in (part or {}).values()]  # fmt: skip
    if "-1" not in amounts:  # no API server accepts it; here it counts as nothing
        needs = intree.needs(pod)
        assert cpu_and_memory(pod.spec) == (needs.get("cpu", 0), -(-needs.get("memory", 0) // (1 << 20)))
