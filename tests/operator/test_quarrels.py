"""Somebody else who changes an object each time it is put back."""

import pytest

from gpushare.operator.applying.quarrels import MOST, PERIOD, Quarrels
from gpushare.operator.seeing.keys import Key
from tests.operator.operated import DAEMON_SETS, NS, Operated

NODE_PART = DAEMON_SETS.item(NS, "gpushare-node")


@pytest.fixture
async def operated() -> Operated:
    made = Operated()
    made.policy()
    await made.settle()
    return made


def changed(operated: Operated, image: str = "theirs") -> None:
    found = operated.api.objects[NODE_PART]
    found["spec"]["template"]["spec"]["containers"][0]["image"] = image
    operated.api.put(NODE_PART, found)


async def test_an_object_is_not_put_back_without_end(operated: Operated) -> None:
    operated.api.writes.clear()
    for _ in range(50):
        changed(operated)
        await operated.passes()
    assert operated.api.writes.count(f"PATCH {NODE_PART}") == MOST
    assert operated.message().startswith("node-part: DaemonSet gpushare-node was changed 5 times within 60 s")
    assert operated.reconciler.again is not None
    statuses = [one for one in operated.api.writes if one.endswith("/status")]
    assert len(statuses) == 1, "the status does not go back and forth"


async def test_a_policy_that_changes_is_applied_nevertheless(operated: Operated) -> None:
    for _ in range(MOST + 1):
        changed(operated)
        await operated.passes()
    operated.change(devicePlugin={"version": "2"})
    await operated.passes()
    spec = operated.api.objects[NODE_PART]["spec"]
    assert spec["template"]["spec"]["containers"][0]["image"] == "gpushare:2"


def test_after_a_while_an_object_may_be_put_back_again() -> None:
    now = [0.0]
    quarrels, key = Quarrels(lambda: now[0]), Key("ConfigMap", NS, "a")
    for _ in range(MOST):
        assert quarrels.over(key) == ""
        quarrels.put_back(key)
        now[0] += 1
    assert "kubectl get configmap -n gpu-operator a -o yaml --show-managed-fields" in quarrels.over(key)
    assert quarrels.later() == PERIOD - MOST
    now[0] = PERIOD
    assert quarrels.over(key) == ""
    assert quarrels.later() is None
