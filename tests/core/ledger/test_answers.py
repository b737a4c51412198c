"""Answers are kept for the shapes people ask, per namespace, and are never out of date."""

from gpushare.core.ledger.answers import Shapes
from gpushare.core.order import tables
from gpushare.core.order.changes import Changes
from tests.support.builders import asks


class Asked:
    """Asks, and answers all that is open."""

    def __init__(self, *nodes: str) -> None:
        self.nodes: dict[str, object] = dict.fromkeys(nodes)
        self.changes = Changes()
        self.shapes = Shapes(self.changes)

    def ask(self, amount: int, namespace: str = "a") -> list[str]:
        """The nodes that had to be looked at to answer."""
        answers = self.shapes.ask(namespace, asks(amount, amount), self.nodes)
        looks = sorted(answers.open)
        answers.refusals.update(dict.fromkeys(answers.open))
        answers.open.clear()
        return looks

    def change(self, node: str) -> None:
        self.changes.note(node, len(self.nodes))


def test_only_nodes_that_changed_are_looked_at_again() -> None:
    asked = Asked("x", "y", "z")
    assert asked.ask(1) == ["x", "y", "z"]
    assert asked.ask(1) == []
    asked.change("y")
    asked.change("y")
    assert asked.ask(1) == ["y"]


def test_a_node_that_is_gone_is_forgotten() -> None:
    asked = Asked("x", "y")
    asked.ask(1)
    del asked.nodes["y"]
    asked.change("y")
    assert asked.ask(1) == []
    answers = asked.shapes.ask("a", asks(1, 1), asked.nodes)
    assert set(answers.refusals) == {"x"}


def test_a_long_list_of_changes_is_cut_and_nothing_is_missed() -> None:
    asked = Asked("x", "y")
    asked.ask(1)
    for _ in range(5000):
        asked.change("x")
    assert len(asked.changes._names) < 3000
    assert asked.ask(1) == ["x", "y"]


def test_a_tenant_keeps_its_shapes_whatever_others_ask() -> None:
    asked = Asked("x")
    asked.ask(1, "mine")
    for amount in range(2 * tables.MOST):
        asked.ask(amount + 2, "theirs")
    assert asked.ask(1, "mine") == []
    assert asked.ask(2, "theirs") == ["x"]


def test_all_namespaces_together_are_bounded() -> None:
    asked = Asked("x")
    for number in range(2 * tables.MOST):
        asked.ask(1 + number % 7, f"ns-{number // 7}")
    assert len(list(asked.shapes._kept)) == tables.MOST


def test_the_more_nodes_there_are_the_fewer_shapes_are_kept() -> None:
    asked = Asked(*map(str, range(20_000)))
    for amount in range(100):
        asked.shapes.ask("a", asks(amount + 1, 1), asked.nodes)
    assert len(list(asked.shapes._kept)) == tables.ENTRIES // 20_000


def test_an_answer_that_somebody_waits_for_is_kept() -> None:
    asked = Asked("x")
    waits = asked.shapes.ask("a", asks(1, 1), asked.nodes)
    waits.wanted = True
    for amount in range(2 * tables.MOST):
        asked.ask(amount + 2)
    assert asked.shapes.wanted() == [waits]
