"""What `gpushare validate --keep` tells Prometheus: our names, and on its own port those of NVIDIA's
node-status-exporter.

Each figure is read from where it is kept when somebody asks.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gpushare.core.annotations.validation import Check, Checks
from gpushare.kube.events import Recorder

STATES: Final = ("passed", "failed", "waiting", "skipped")
NVIDIAS: Final = "gpu_operator_node_"
OF_CHECK: Final = {"driver": "driver", "toolkit": "toolkit", "plugin": "plugin", "workload": "cuda"}
UNKNOWN: Final = -1  # NVIDIA's for what cannot be read


class Sight(NamedTuple):
    """What is kept elsewhere. `devices`: of what the node sells. `pci`: GPUs on the bus. Both None: not known.
    `last_passed`: seconds since 1970, by check."""

    node: str
    checks: Callable[[], Checks]
    last_passed: Callable[[], dict[str, float]]
    devices: Callable[[], int | None]
    pci: Callable[[], int | None]


class Metrics(Collector):
    def __init__(self, sight: Sight, recorder: Recorder, writes: Callable[[], int]) -> None:
        self.registry = CollectorRegistry()
        self._sight, self._recorder, self._writes = sight, recorder, writes
        self.registry.register(self)

    def collect(self) -> Iterable[Metric]:
        checks = GaugeMetricFamily(
            "gpushare_validation",
            "1: the check is in this state; 0: it is not.",
            labels=["check", "state"],
        )
        for name, check in self._sight.checks().items():
            for state in STATES:
                checks.add_metric([name, state], float(check.state == state))
        yield checks
        yield GaugeMetricFamily(
            "gpushare_validation_writes", "Writes of the annotation gpushare.io/validation.", self._writes()
        )
        events = GaugeMetricFamily("gpushare_events", "Events, by outcome.", labels=["outcome"])
        recorder = self._recorder
        for outcome, count in (("sent", recorder.sent), ("dropped", recorder.dropped), ("failed", recorder.failed)):
            events.add_metric([outcome], count)
        yield events


class NodeStatus(Collector):
    """NVIDIA's names."""

    def __init__(self, sight: Sight) -> None:
        self.registry = CollectorRegistry()
        self._sight = sight
        self.registry.register(self)

    def collect(self) -> Iterable[Metric]:
        checks, last = self._sight.checks(), self._sight.last_passed()
        for check, name in OF_CHECK.items():
            yield self._gauge(f"{NVIDIAS}{name}_ready", f"1: {name} is ready on this node.", _ready(checks.get(check)))
        yield self._gauge(f"{NVIDIAS}driver_validation", "1: the driver answers.", _ready(checks.get("driver")))
        for check, name in (("driver", "driver"), ("plugin", "device_plugin")):
            yield self._gauge(
                f"{NVIDIAS}{name}_validation_last_success_ts_seconds",
                f"When the check of {name} passed last, in seconds since 1970.",
                last.get(check, 0.0),
            )
        yield self._gauge(
            f"{NVIDIAS}device_plugin_devices_total", "What the node part sells, as kubelet allocates it.",
            _known(self._sight.devices()),
        )  # fmt: skip
        yield self._gauge("gpu_operator_nvidia_pci_devices_total", "GPUs on the PCI bus.", _known(self._sight.pci()))

    def _gauge(self, name: str, says: str, value: float) -> GaugeMetricFamily:
        made = GaugeMetricFamily(name, says, labels=["node"])
        made.add_metric([self._sight.node], value)
        return made


def _ready(check: Check | None) -> float:
    return float(check is not None and check.state == "passed")


def _known(value: int | None) -> float:
    return float(UNKNOWN if value is None else value)
