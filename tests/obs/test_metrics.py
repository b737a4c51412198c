"""Metrics of one instance are its own, and fast calls are told apart."""

from prometheus_client import REGISTRY, CollectorRegistry

from gpushare.obs import metrics

NAME = "gpushare_test_seconds"


def test_each_label_value_is_there_before_its_first_call() -> None:
    registry = CollectorRegistry()
    metrics.latencies(registry, NAME, "How long calls take", "verb", ("filter", "bind"))
    body, content_type = metrics.exposition(registry)
    assert b'gpushare_test_seconds_count{verb="bind"} 0.0' in body
    assert b'gpushare_test_seconds_count{verb="filter"} 0.0' in body
    assert content_type.startswith("text/plain")


def test_calls_of_microseconds_and_of_milliseconds_fall_into_different_buckets() -> None:
    registry = CollectorRegistry()
    calls = metrics.latencies(registry, NAME, "How long calls take", "verb", ("filter",))
    calls["filter"].observe(0.00008)
    calls["filter"].observe(0.004)
    labels = {"verb": "filter", "le": "0.0001"}
    assert registry.get_sample_value(f"{NAME}_bucket", labels) == 1
    assert registry.get_sample_value(f"{NAME}_bucket", labels | {"le": "0.005"}) == 2


def test_two_instances_in_one_process_do_not_meet() -> None:
    one, other = CollectorRegistry(), CollectorRegistry()
    metrics.latencies(one, NAME, "How long calls take", "verb", ("bind",))["bind"].observe(1)
    metrics.latencies(other, NAME, "How long calls take", "verb", ("bind",))
    assert other.get_sample_value(f"{NAME}_count", {"verb": "bind"}) == 0
    assert REGISTRY.get_sample_value(f"{NAME}_count", {"verb": "bind"}) is None
