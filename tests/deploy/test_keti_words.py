"""The command lines of deploy/keti start what is probed there, with what KETI's installation needs."""

import pytest

from gpushare.cli import mps
from gpushare.core.facts import names
from gpushare.kube.scraping.server import Listening
from tests.support import manifests

SCHEDULER, PLUGIN, COLLECTOR = (
    f"keti/deployments/{name}.yaml" for name in ("gpu-scheduler", "device-plugin", "metric-collector")
)
INFLUX = "http://influxdb.gpu.svc.cluster.local:8086"


def container(name: str, kind: str, called: str) -> manifests.Object:
    pod = manifests.one(name, kind)["spec"]["template"]["spec"]
    (found,) = (one for one in pod["containers"] if one["name"] == called)
    return dict(found)


def check_probes(one: manifests.Object, host: str, port: int) -> None:
    for probe, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert one[probe]["httpGet"] == {"host": host, "port": port, "path": path}
    assert {"containerPort": port, "hostPort": port, "hostIP": host}.items() <= one["ports"][0].items()


def test_the_extender_scores_by_figures_and_reads_ketis_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    config = manifests.extender_config(container(SCHEDULER, "Deployment", manifests.EXTENDER)["args"], monkeypatch)
    assert (config.host, config.ports, config.tls) == ("127.0.0.1", [12345], None)
    assert (config.policy, config.policy_namespace) == ("metric", "gpu")
    assert config.metrics == Listening(manifests.POD_IP, 12348)


def test_the_collector_measures_and_is_quiet_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    one = container(COLLECTOR, "DaemonSet", "keti-gpu-metric-collector")
    config = manifests.collector_config(one["args"], monkeypatch)
    assert config.observing == manifests.OBSERVING._replace(influx=INFLUX)
    assert not config.fail_on_init_error
    check_probes(one, config.host, config.port)


def test_the_node_part_sells_ketis_slots_does_not_sample_and_is_quiet_without_a_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = container(PLUGIN, "DaemonSet", "keti-gpu-device-plugin")
    config = manifests.node_config(one["args"], monkeypatch)
    assert (config.unit, config.slots, config.mps_status) == ("MiB", 10, names.MPS_STATUS_FOLDER)
    assert (config.observing.sample_seconds, config.observing.exporter.listen) == (0, None)
    assert not config.fail_on_init_error
    check_probes(one, config.host, config.port)


def test_mps_is_where_everybody_looks_for_it_and_quiet_without_a_driver() -> None:
    one = container(PLUGIN, "DaemonSet", "mps")
    assert one["args"] == ["mps", "--fail-on-init-error=false"]
    check_probes(one, "127.0.0.1", int(mps.PORT))
