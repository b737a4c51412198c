"""What `gpushare mps` counts of itself. Each figure is read from where it is kept when Prometheus asks."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gpushare.kube.events import Recorder
from gpushare.mps.supervisor import Supervisor


class Metrics(Collector):
    def __init__(self, supervisor: Supervisor, recorder: Recorder) -> None:
        self.registry = CollectorRegistry()
        self._supervisor, self._recorder = supervisor, recorder
        self.registry.register(self)

    def collect(self) -> Iterable[Metric]:
        up = float(self._supervisor.state == "up")
        yield GaugeMetricFamily("gpushare_mps_up", "1: the MPS daemon serves clients; 0: it does not.", up)
        yield GaugeMetricFamily(
            "gpushare_mps_servers", "MPS servers that run, one for each user.", self._supervisor.servers
        )
        yield CounterMetricFamily(
            "gpushare_mps_losses", "Daemons that served clients and failed.", self._supervisor.restarts
        )
        events = GaugeMetricFamily("gpushare_events", "Events, by outcome.", labels=["outcome"])
        recorder = self._recorder
        for outcome, count in (("sent", recorder.sent), ("dropped", recorder.dropped), ("failed", recorder.failed)):
            events.add_metric([outcome], count)
        yield events
