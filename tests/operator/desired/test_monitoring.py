"""Monitors and alerts, where the Prometheus Operator is there to read them."""

from tests.support import policies

ON = {"monitoring": {"enabled": True}}


def test_monitors_look_for_pods_in_the_namespace_of_the_operator() -> None:
    for name in ("gpushare-node", "gpushare-extender"):
        monitor = policies.one(ON, "PodMonitor", name)
        assert monitor["metadata"]["namespace"] == policies.NAMESPACE
        assert monitor["spec"]["namespaceSelector"] == {"matchNames": [policies.NAMESPACE]}


def test_prometheus_gets_the_right_to_read_metrics_and_no_other() -> None:
    made = policies.desired(ON)["monitoring"].objects
    (role,) = (one for one in made if one["kind"] == "ClusterRole")
    assert role["rules"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]


def test_without_the_prometheus_operator_the_status_says_what_to_do() -> None:
    made = policies.desired(ON, policies.CLUSTER._replace(kinds=frozenset()))["monitoring"]
    assert made.objects == ()
    assert "install the Prometheus Operator" in made.unserved


def test_alerts_come_only_where_there_is_a_kind_for_them() -> None:
    kinds = frozenset({"podmonitors.monitoring.coreos.com/v1"})
    made = policies.desired(ON, policies.CLUSTER._replace(kinds=kinds))["monitoring"]
    assert {"PodMonitor"} == {one["kind"] for one in made.objects} & {"PodMonitor", "PrometheusRule"}
