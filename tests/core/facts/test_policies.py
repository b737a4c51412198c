"""Policies: one entry of the table is all that a policy needs."""

from typing import Any

import pytest

from gpushare import cli
from gpushare.core.facts import policies
from gpushare.core.facts.model import Refusal, Request
from gpushare.core.facts.policies import Policy
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.placement import gpu_choice
from gpushare.core.placement.room import Room
from gpushare.core.scheduling import ranking
from tests.support.builders import bound, container, facts, pod


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> str:
    """The emptiest first, like spread."""
    monkeypatch.setitem(policies.POLICIES, "toy", Policy("toy", "a toy", True))
    return "toy"


def ranked(ledger: Ledger, policy: str, **asked: Any) -> list[str]:
    waiting = pod(4, **asked)
    assert isinstance(waiting.request, Request)
    return [node for node, _ in ranking.best(ledger, waiting.request, waiting, list(ledger.node_names()), policy)]


def nodes(**free: tuple[int, ...]) -> Ledger:
    """Nodes with GPUs of 10 units, that much of them free."""
    ledger = Ledger()
    for name, left in free.items():
        node = facts(*([10] * len(left)), name=name)
        ledger.set_node(node)
        for gpu, amount in enumerate(left):
            if amount < 10:
                ledger.observe(bound(pod(10 - amount), node, ((gpu,),)), 0.0)
    return ledger


def test_each_policy_is_registered_by_its_own_name_and_the_default_is_one_of_them() -> None:
    assert all(name == policy.name and policy.help for name, policy in policies.POLICIES.items())
    assert policies.DEFAULT in policies.POLICIES


def test_a_pod_may_name_a_policy_of_the_table(toy: str) -> None:
    request = pod(4, policy=toy).request
    assert isinstance(request, Request)
    assert request.policy == toy


def test_the_refusal_names_the_policies_of_the_table(toy: str) -> None:
    refusal = pod(4, policy="tyo").request
    assert isinstance(refusal, Refusal)
    assert refusal.message == f"gpushare.io/policy is not {' or '.join(policies.POLICIES)}"
    assert refusal.message.endswith(" or vrc or toy")


def test_the_gpu_order_of_the_table_chooses_the_gpu(toy: str) -> None:
    room = Room.of(facts(10, 10, 10), (5, 2, 3))
    one, two = pod(4).request, pod(containers=[container("x", 4), container("y", 2)]).request
    assert isinstance(one, Request)
    assert isinstance(two, Request)
    assert gpu_choice.plan(one, room, toy) == ((1,),)
    assert gpu_choice.plan(two, room, toy) == ((1,), (2,))
    assert gpu_choice.plan(two, room, "binpack") == ((0,), (2,))


def test_the_table_ranks_nodes_for_one_share_and_for_more(toy: str) -> None:
    ledger = nodes(a=(10, 10), b=(4, 7), c=(6, 6), d=(3, 3))
    assert ranked(ledger, toy) == ranked(ledger, "spread") == ["a", "b", "c"]
    assert ranked(ledger, "binpack") == ["b", "c", "a"]
    assert ranked(ledger, toy, split=2) == ["a", "c", "b", "d"]  # what two GPUs keep together, the most first
    assert ranked(ledger, "binpack", split=2) == ["d", "b", "c", "a"]


def test_the_command_line_knows_the_policies_of_the_table(capsys: pytest.CaptureFixture[str], toy: str) -> None:
    assert cli.main(["extender", "--policy", "tyo"]) == 2
    assert (
        "policies: binpack, spread, random, keti, metric, best-fit, dotprod, gpu-packing, gpu-clustering, fgd, vrc, toy"
        in capsys.readouterr().err
    )
    assert cli.main(["extender", "--help-policies"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert all(f"  {name:<16}{policy.help}" in shown for name, policy in policies.POLICIES.items() if name != toy)
