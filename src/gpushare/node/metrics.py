"""What the node component counts of itself; what GPUs do is on the same page (`node/exporter`).

Each figure is read from its source when Prometheus asks: nothing is counted twice.
"""

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class Sight:
    """Functions that return the numbers. The parts of the component are made one after the other; until then a function
    returns nothing."""

    def __init__(self) -> None:
        self.found: Callable[[], Mapping[str, int]] = dict  # problems, by their kind
        self.done: Callable[[], Mapping[str, int]] = dict  # writes, by what was written
        self.events: Callable[[], Mapping[str, int]] = dict  # events, by outcome
        self.ages: Callable[[], Mapping[str, float]] = dict  # seconds since API server or driver answered


class Metrics(Collector):
    def __init__(self, sight: Sight) -> None:
        self.registry = CollectorRegistry()
        self._sight = sight
        self.registry.register(self)

    def collect(self) -> Iterable[Metric]:
        yield _labelled("gpushare_node_audit", "Problems found by the audit, by kind.", "found", self._sight.found())
        yield _labelled("gpushare_events", "Events, by outcome.", "outcome", self._sight.events())
        yield _labelled(
            "gpushare_watch_age_seconds", "Seconds since the API server or the driver last answered.", "of",
            self._sight.ages(),
        )  # fmt: skip
        writes = CounterMetricFamily("gpushare_node_writes", "Writes to the API server.", labels=["of"])
        for name, count in self._sight.done().items():
            writes.add_metric([name], count)
        yield writes


def _labelled(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=[label])
    for value, number in values.items():
        family.add_metric([value], number)
    return family
