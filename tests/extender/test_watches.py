"""What watches bring is kept as small as it can be, for as long as it is needed."""

import msgspec
import pytest

from gpushare.core.facts import objects
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.scheduling.life import Life
from gpushare.extender import watches
from gpushare.extender.events import Announcer
from gpushare.extender.metrics import Metrics
from gpushare.extender.watches import Pods
from gpushare.kube import client
from gpushare.kube.auth import login
from gpushare.kube.events import Recorder
from tests.support.builders import api_pod


@pytest.fixture
async def pods() -> Pods:
    ledger = Ledger()
    async with client.connect(login.Access("http://127.0.0.1:1")) as nobody:
        recorder = Recorder(nobody)
    metrics = Metrics(ledger)
    return Pods(
        Life(ledger, policy="binpack"), Announcer(recorder, ledger), metrics,
        unit=None, identity="me", clock=lambda: 0.0,
    )  # fmt: skip


def bound(number: int, namespace: str) -> objects.Pod:
    made = api_pod(5, name=f"p{number}", namespace=namespace, on="n")
    return msgspec.json.decode(msgspec.json.encode(made), type=objects.Pod)  # so that no two share a string


async def test_pods_of_one_namespace_and_node_share_these_names(pods: Pods) -> None:
    for number in range(2):
        pods.upsert(bound(number, "team"))
    one, two = [holding.pod for holding in pods._ledger.holdings()]
    assert one.namespace is two.namespace
    assert one.node is two.node
    assert one.request is two.request


async def test_names_of_namespaces_that_are_gone_are_let_go(pods: Pods, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "MOST_NAMES", 100)
    for number in range(1000):
        made = bound(number, f"namespace-{number}")
        pods.upsert(made)
        pods.remove(made)
        assert len(pods._names) <= 101
    assert not pods._ledger.holdings()
