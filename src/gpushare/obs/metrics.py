"""What components share about Prometheus metrics: buckets for fast calls, and the page that is scraped.

Each component makes its own `CollectorRegistry` and its own metrics; the global registry is not used, because two
instances in one test process would need the same names.
"""

import time
from collections.abc import Iterable
from typing import Final

import prometheus_client
from prometheus_client import CollectorRegistry, Histogram

# From 50 µs, because a look-up in memory takes that long, to 10 s, after which every request is given up.
LATENCY_BUCKETS: Final = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1, 2.5, 10)


def latencies(
    registry: CollectorRegistry, name: str, documentation: str, label: str, values: Iterable[str]
) -> dict[str, Histogram]:
    """A histogram of seconds for each value of one label, made at once: looking up a label takes a lock per call."""
    family = Histogram(name, documentation, (label,), registry=registry, buckets=LATENCY_BUCKETS)
    return {value: family.labels(value) for value in values}


class Timed:
    """Observes how long its block took, in seconds."""

    __slots__ = ("_begun", "_histogram")

    def __init__(self, histogram: Histogram) -> None:
        self._histogram = histogram

    def __enter__(self) -> None:
        self._begun = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._histogram.observe(time.perf_counter() - self._begun)


def exposition(registry: CollectorRegistry) -> tuple[bytes, str]:
    """The body and the content type that answer a scrape."""
    return prometheus_client.generate_latest(registry), prometheus_client.CONTENT_TYPE_LATEST
