"""A pod that is only there so that kube-scheduler asks about it: refused everywhere, and nothing is held for it."""

import json

import pytest

from gpushare.core.facts import names, policies
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.scheduling.life import Life
from gpushare.extender.verbs import Verbs


@pytest.mark.parametrize("verb", ["choose", "filter"])
@pytest.mark.parametrize("amount", ["0", "100"])
def test_it_is_refused_with_a_sentence_on_every_node(verb: str, amount: str) -> None:
    life = Life(Ledger(), policy=policies.DEFAULT)
    verbs = Verbs(life, unit=None, clock=lambda: 0.0, cannot_answer=lambda _: "", count_refusal=lambda _: None)
    pod = {
        "metadata": {
            "uid": "1",
            "name": "asked",
            "namespace": "kube-system",
            "annotations": {names.ONLY_ASKED: "true"},
        },
        "spec": {"containers": [{"name": "asked", "resources": {"limits": {names.GPU_MEM: amount}}}]},
    }
    body = json.dumps({"Pod": pod, "NodeNames": ["a", "b"]}).encode()
    answer = json.loads(getattr(verbs, verb)(body))
    assert answer["NodeNames"] == []
    assert answer["FailedAndUnresolvableNodes"] == dict.fromkeys(("a", "b"), names.ASKED)
    assert list(life.ledger.holdings()) == []
