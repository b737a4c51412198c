"""docs/metrics.md names every metric that a component exports, and no other."""

import re
from types import SimpleNamespace
from typing import cast

from prometheus_client import CollectorRegistry

from gpushare.core.explain import figures
from gpushare.core.explain.waiting import Waiting
from gpushare.core.ledger.ledger import Ledger
from gpushare.extender import metrics as of_extender
from gpushare.gpu.sample import Sample
from gpushare.kube.events import Recorder
from gpushare.mps import metrics as mps
from gpushare.mps.supervisor import Supervisor
from gpushare.node import metrics as of_node
from gpushare.node.exporter import page
from gpushare.node.usage.model import ContainerUse, GpuUse, Usage
from gpushare.node.usage.overuse import Key
from gpushare.validate import metrics as validator
from gpushare.webhook import server as webhook
from tests.deploy.test_monitoring import documented

# A GPU that tells everything, with everything on it.
FIGURES = {name: 1 for name in Sample.__struct_fields__ if name not in ("uuid", "index", "processes")}
SAMPLE = Sample("GPU-1", 0, **FIGURES)  # type: ignore[arg-type]
CONTAINER = ContainerUse("ml", "llm", "u1", "main", granted=1, used=2, sm=0.5)
GPU = GpuUse(
    0, "GPU-1", "T4", 1, 1, slots=1, granted_slots=1, sample=SAMPLE, containers=(CONTAINER,), unattributed=1
)  # fmt: skip
COUNTED = page.Counted(overuses={Key("u1", "main", "GPU-1"): 1})


def named(registry: CollectorRegistry) -> set[str]:
    return {f"{family.name}{'_total' * (family.type == 'counter')}" for family in registry.collect()}


def on_the_page() -> set[str]:
    text = page.page(Usage("a", (GPU,), sampled_at=1.0), COUNTED, page.Wanted())
    return set(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE))


def of_the_extender() -> set[str]:
    metrics = of_extender.Metrics(Ledger())
    metrics.watch(lambda: [("pods", 1.0)], lambda: (0, 0, 0))
    metrics.policy(lambda: {"gpu-allocate-prefer": "spread"})
    metrics.look(lambda: (figures.Figures({"p90": figures.Size(1, 0.5)}, 0), {"NoSingleGpu": Waiting(1, 0.0)}))
    return named(metrics.registry)


def of_the_node() -> set[str]:
    """With InfluxDB."""
    sight = of_node.Sight()
    sight.influx_waiting = lambda: 0
    return named(of_node.Metrics(sight).registry)


def of_mps() -> set[str]:
    supervisor = cast(Supervisor, SimpleNamespace(state="up", servers=1, restarts=0))
    recorder = cast(Recorder, SimpleNamespace(sent=0, dropped=0, failed=0))
    return named(mps.Metrics(supervisor, recorder).registry)


def of_the_validator() -> set[str]:
    sight = validator.Sight("a", dict, dict, lambda: 1, lambda: 1)
    recorder = cast(Recorder, SimpleNamespace(sent=0, dropped=0, failed=0))
    return named(validator.Metrics(sight, recorder, lambda: 0).registry) | named(validator.NodeStatus(sight).registry)


def test_every_metric_is_documented_and_nothing_else_is() -> None:
    exported = on_the_page() | of_the_extender() | of_the_node()
    exported |= of_mps() | of_the_validator()
    exported |= named(webhook.Handlers({}, lambda: "").registry)
    assert exported == documented()
