"""What the node component shows to Prometheus. Read when somebody scrapes, never kept beside what it is read from."""

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gpushare.node.publishing.desired import Wanted


class Sight:
    """Where the numbers are, as functions: parts of the component come into being one after the other."""

    def __init__(self) -> None:
        self.wants: Callable[[], Wanted | None] = lambda: None
        self.found: Callable[[], Mapping[str, int]] = dict  # by what the audit calls it
        self.done: Callable[[], Mapping[str, int]] = dict  # writes by what was written
        self.events: Callable[[], Mapping[str, int]] = dict  # by what became of them
        self.ages: Callable[[], Mapping[str, float]] = (
            dict  # seconds since the API server, or the driver, said anything
        )


class Metrics(Collector):
    def __init__(self, sight: Sight) -> None:
        self.registry = CollectorRegistry()
        self._sight = sight
        self.registry.register(self)

    def collect(self) -> Iterable[Metric]:
        wants = self._sight.wants()
        if wants is not None:
            yield from _gpus(wants)
        yield _labelled("gpushare_node_audit", "What must not be and is, by kind.", "found", self._sight.found())
        yield _labelled("gpushare_events", "Events, by what became of them.", "outcome", self._sight.events())
        yield _labelled(
            "gpushare_watch_age_seconds", "Since the API server, or the driver, last said anything.", "of",
            self._sight.ages(),
        )  # fmt: skip
        writes = CounterMetricFamily("gpushare_node_writes", "Writes to the API server.", labels=["of"])
        for name, count in self._sight.done().items():
            writes.add_metric([name], count)
        yield writes


def _gpus(wants: Wanted) -> Iterable[Metric]:
    labels = ["gpu", "uuid", "unit"]
    total = GaugeMetricFamily("gpushare_gpu_memory_total", "GPU memory that may be given out.", labels=labels)
    held = GaugeMetricFamily("gpushare_gpu_memory_held", "GPU memory that pods hold.", labels=labels)
    well = GaugeMetricFamily("gpushare_gpu_healthy", "1 if the GPU gets new pods.", labels=labels[:2])
    for gpu in wants.facts.gpus:
        values = [str(gpu.index), gpu.uuid, wants.facts.unit]
        total.add_metric(values, gpu.total)
        held.add_metric(values, wants.held.get(gpu.uuid, 0))
        well.add_metric(values[:2], gpu.healthy)
    return (total, held, well)


def _labelled(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=[label])
    for value, number in values.items():
        family.add_metric([value], number)
    return family
