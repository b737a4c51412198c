"""What the extender counts, for `/metrics`.

Counters are made once with their labels: to look up a label costs more than the decision it counts. Totals of GPU
memory are read from the ledger when Prometheus asks. What needs more than that of every node is computed by
`background.cluster_figures` from time to time, and only printed here.
"""

import time
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from gpushare.core.explain.figures import Figures
from gpushare.core.explain.waiting import Waiting
from gpushare.core.facts import names
from gpushare.core.ledger.holding import State
from gpushare.core.ledger.ledger import Ledger
from gpushare.obs import metrics

Ages = Callable[[], Iterable[tuple[str, float]]]  # of each watch, in seconds
Events = Callable[[], tuple[int, int, int]]  # sent, dropped, failed
Cluster = tuple[Figures, Mapping[str, Waiting]]
STATES = {"held": State.ASSUMED, "reserved": State.RESERVED, "bound": State.BOUND}  # by label of gpushare_pods
VERBS = ("filter", "choose", "prioritize", "bind", "preempt", "inspect", "explain")


class Metrics:
    def __init__(self, ledger: Ledger) -> None:
        self.registry = CollectorRegistry()
        self.latency = metrics.latencies(
            self.registry, "gpushare_request_seconds", "Time to answer a request.", "verb", VERBS
        )
        self._refusals = self._counter("refusals", "Pods refused, by reason.", "code")
        self.conflicts = self._counter(
            "bind_conflicts", "Bindings refused because the pod does not fit the node any more."
        )
        holds = self._counter("holds", "Assumed nodes, by whether the pod was bound there: right or wrong.", "outcome")
        self.holds_right, self.holds_wrong = holds.labels("right"), holds.labels("wrong")
        self.bound = self._counter("bound", "Pods bound.")
        self.wake_ups = self._counter("wake_ups", "Waiting pods annotated so that kube-scheduler tries them again.")
        self.policy_refused = self._counter("policy_refused", "Changes of policy ConfigMaps that were refused.")
        self.rescheduled = self._counter("rescheduled", "Pods evicted from a bad GPU, by what was wrong.", "reason")
        self.second_extender = self._counter("second_extender", "Pods bound by another extender.")
        self.registry.register(_Memory(ledger))

    def refused(self, code: str) -> None:
        self._refusals.labels(code).inc()

    def watch(self, ages: Ages, events: Events) -> None:
        """Also show how old each watch is, and how many events were sent, dropped or failed."""
        self.registry.register(_Links(ages, events))

    def look(self, cluster: Callable[[], Cluster | None], now: Callable[[], float] = time.time) -> None:
        """Also show what was last found by a look at all nodes; None: nothing yet. `now`: seconds since 1970."""
        self.registry.register(_Cluster(cluster, now))

    def policy(self, settings: Callable[[], Mapping[str, str]]) -> None:
        """Also show the settings in force, by key."""
        self.registry.register(_Policy(settings))

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"gpushare_{name}", text, labels, registry=self.registry)


class _Memory(Collector):
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def collect(self) -> Iterable[GaugeMetricFamily]:
        sums = {unit: [0, 0] for unit in names.UNITS}
        pods = GaugeMetricFamily("gpushare_pods", "Pods in the ledger, by state.", labels=["state"])
        for room in self._ledger.rooms():
            sums[room.facts.unit][0] += sum([gpu.total for gpu in room.facts.gpus]) - sum(room.free)
            sums[room.facts.unit][1] += room.sum_free
        granted = GaugeMetricFamily("gpushare_memory_granted", "GPU memory that pods hold.", labels=["unit"])
        free = GaugeMetricFamily("gpushare_memory_free", "GPU memory free on healthy GPUs.", labels=["unit"])
        for unit, (taken, left) in sums.items():
            granted.add_metric([unit], taken)
            free.add_metric([unit], left)
        holdings, bound = self._ledger.holdings(), State.BOUND
        others = [holding.state for holding in holdings if holding.state is not bound]  # few of a hundred thousand
        for label, state in STATES.items():
            pods.add_metric([label], others.count(state) if state is not bound else len(holdings) - len(others))
        kept = GaugeMetricFamily(
            "gpushare_pods_kept_for", "Pods that have waited too long and have GPUs kept for them."
        )
        kept.add_metric([], len(self._ledger.kept()))
        gpus = {(kept.node, key) for kept in self._ledger.kept() for keys in kept.keys for key in keys}
        on = GaugeMetricFamily("gpushare_gpus_kept", "GPUs kept for pods that have waited too long.")
        on.add_metric([], len(gpus))
        return [granted, free, pods, kept, on]


class _Links(Collector):
    def __init__(self, ages: Ages, events: Events) -> None:
        self._ages, self._events = ages, events

    def collect(self) -> Iterable[GaugeMetricFamily]:
        age = GaugeMetricFamily(
            "gpushare_watch_age_seconds", "Seconds since the API server last sent anything.", labels=["of"]
        )
        for name, seconds in self._ages():
            age.add_metric([name], seconds)
        sent = GaugeMetricFamily("gpushare_events", "Events, by outcome.", labels=["outcome"])
        for outcome, count in zip(("sent", "dropped", "failed"), self._events(), strict=True):
            sent.add_metric([outcome], count)
        return [age, sent]


class _Policy(Collector):
    def __init__(self, settings: Callable[[], Mapping[str, str]]) -> None:
        self._settings = settings

    def collect(self) -> Iterable[GaugeMetricFamily]:
        family = GaugeMetricFamily(
            "gpushare_policy_setting", "1 for each setting of the policy ConfigMaps in force.", labels=["key", "value"]
        )
        for key, value in self._settings().items():
            family.add_metric([key, value], 1)
        return [family]


class _Cluster(Collector):
    def __init__(self, cluster: Callable[[], Cluster | None], now: Callable[[], float]) -> None:
        self._cluster, self._now = cluster, now

    def collect(self) -> Iterable[GaugeMetricFamily]:
        found = self._cluster()
        if found is None:
            return []
        figures, waiting = found
        pods = GaugeMetricFamily("gpushare_waiting_pods", "Pods that wait, by reason.", labels=["code"])
        oldest = GaugeMetricFamily(
            "gpushare_oldest_waiting_seconds", "How long the first of them has waited.", labels=["code"]
        )
        for code, group in sorted(waiting.items()):
            pods.add_metric([code], group.pods)
            oldest.add_metric([code], max(self._now() - group.since, 0.0))
        fitting = GaugeMetricFamily("gpushare_fitting_pods", "Pods of this size that still fit.", labels=["size"])
        unusable = GaugeMetricFamily(
            "gpushare_unusable_free_ratio", "Part of the free GPU memory that pods of this size cannot use, 0 to 1.",
            labels=["size"],
        )  # fmt: skip
        for name, size in figures.sizes.items():
            fitting.add_metric([name], size.fitting)
            if size.unusable is not None:
                unusable.add_metric([name], size.unusable)
        unplaced = GaugeMetricFamily("gpushare_unplaced_pods", "Bound pods whose GPU is not known.")
        unplaced.add_metric([], figures.unplaced)
        return [pods, oldest, fitting, unusable, unplaced]
