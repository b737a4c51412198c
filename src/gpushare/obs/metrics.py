"""What components share about Prometheus metrics: buckets for fast calls, and the page that is scraped.

Each component makes its own `CollectorRegistry` and its own metrics; the global registry is not used, because two
instances in one test process would need the same names.
"""

import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Final

import prometheus_client
from prometheus_client import CollectorRegistry
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

# From 50 µs, because a look-up in memory takes that long, to 10 s, after which every request is given up.
LATENCY_BUCKETS: Final = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1, 2.5, 10)


class Latency:
    """How long calls of one sort took. Prometheus' own histogram takes two locks at each call."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(LATENCY_BUCKETS) + 1)  # by bucket, the last without an upper bound
        self.total = 0.0  # seconds

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(LATENCY_BUCKETS, seconds)] += 1
        self.total += seconds


class _Latencies(Collector):
    def __init__(self, name: str, documentation: str, label: str, calls: Mapping[str, Latency]) -> None:
        self._name, self._documentation, self._label, self._calls = name, documentation, label, calls

    def collect(self) -> Iterable[HistogramMetricFamily]:
        family = HistogramMetricFamily(self._name, self._documentation, labels=[self._label])
        for value, latency in self._calls.items():
            bounds = [*map(str, map(float, LATENCY_BUCKETS)), "+Inf"]
            buckets = list(zip(bounds, accumulate(latency.counts), strict=True))
            family.add_metric([value], buckets, latency.total)
        return [family]


def latencies(
    registry: CollectorRegistry, name: str, documentation: str, label: str, values: Iterable[str]
) -> dict[str, Latency]:
    """A histogram of seconds for each value of one label."""
    calls = {value: Latency() for value in values}
    registry.register(_Latencies(name, documentation, label, calls))
    return calls


class Timed:
    """Observes how long its block took, in seconds."""

    __slots__ = ("_begun", "_latency")

    def __init__(self, latency: Latency) -> None:
        self._latency = latency

    def __enter__(self) -> None:
        self._begun = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._latency.observe(time.perf_counter() - self._begun)


def exposition(registry: CollectorRegistry) -> tuple[bytes, str]:
    """The body and the content type that answer a scrape."""
    return prometheus_client.generate_latest(registry), prometheus_client.CONTENT_TYPE_LATEST
