"""What the operator counts of itself, under names as NVIDIA's operator has them. Read when Prometheus asks."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gpushare.kube.events import Recorder

Object = dict[str, Any]

READY, NOT_READY, NO_POLICY, FAILED = 1, 0, -1, -2
PREFIX: Final = "gpushare_operator"


class Figures:
    """Kept over all terms of a leader."""

    def __init__(self) -> None:
        self.passes = self.failed = self.writes = 0
        self.last_success = 0.0  # seconds since 1970; 0: none yet
        self.result = NO_POLICY
        self.status: Object = {}  # of the active policy, as last written


class Metrics(Collector):
    def __init__(self, figures: Figures, recorder: Recorder, leads: Callable[[], bool]) -> None:
        self.registry = CollectorRegistry()
        self._figures, self._recorder, self._leads = figures, recorder, leads
        self.registry.register(self)

    def collect(self) -> Iterable[Metric]:
        figures, leads = self._figures, self._leads()
        yield _gauge("is_leader", "1: this replica works; 0: it waits.", leads)
        yield _gauge(
            "reconciliation_status", "1: ready, 0: not ready, -1: there is no policy, -2: a pass failed.",
            figures.result,
        )  # fmt: skip
        yield _counter("reconciliation", "Passes over everything.", figures.passes)
        yield _counter("reconciliation_failed", "Passes that could not do all.", figures.failed)
        yield _gauge(
            "reconciliation_last_success_ts_seconds", "When a pass last did all, in seconds since 1970.",
            figures.last_success,
        )  # fmt: skip
        yield _counter("writes", "Requests that change something in the cluster.", figures.writes)
        nodes = figures.status.get("nodes") or {}
        yield _gauge("gpu_nodes_total", "Nodes with GPUs of NVIDIA.", nodes.get("gpu", 0))
        yield _gauge("gpu_nodes_ready", "GPU nodes on which nothing is wrong.", nodes.get("ready", 0))
        yield from self._components()
        events = GaugeMetricFamily("gpushare_events", "Events, by outcome.", labels=["outcome"])
        recorder = self._recorder
        for outcome, count in (("sent", recorder.sent), ("dropped", recorder.dropped), ("failed", recorder.failed)):
            events.add_metric([outcome], count)
        yield events

    def _components(self) -> Iterable[Metric]:
        figures = (
            ("component_ready", "1: the component is ready.", lambda one: float(one["state"] == "ready")),
            ("component_pods_desired", "Pods that a component should have.", lambda one: one.get("desired", 0)),
            ("component_pods_ready", "Pods of a component that are ready.", lambda one: one.get("ready", 0)),
        )
        serving = [one for one in self._figures.status.get("components") or () if one["state"] in ("ready", "notReady")]
        for name, help, value in figures:
            family = GaugeMetricFamily(f"{PREFIX}_{name}", help, labels=["component"])
            for one in serving:
                family.add_metric([one["name"]], value(one))
            yield family


def _gauge(name: str, help: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{PREFIX}_{name}", help, float(value))


def _counter(name: str, help: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(f"{PREFIX}_{name}", help, float(value))
