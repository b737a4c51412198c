"""Whoever puts much into a queue waits for their own."""

from gpushare.core.turns import Turns


def filled(*words: str) -> Turns[str, int]:
    """`a1` is what group a puts first."""
    made: Turns[str, int] = Turns()
    for word in words:
        made.put(word[0], word, int(word[1:]))
    return made


def emptied(turns: Turns[str, int]) -> list[str]:
    return [turns.take()[0] for _ in range(len(turns))]


def test_groups_are_served_in_turn_and_each_in_its_own_order() -> None:
    assert emptied(filled("a1", "a2", "a3", "b1", "c1", "b2")) == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_who_comes_late_waits_for_one_of_each_group_only() -> None:
    turns = filled("a1", "a2", "a3", "b1", "b2")
    assert turns.take() == ("a1", 1)
    turns.put("c", "c1", 1)
    assert emptied(turns) == ["b1", "a2", "c1", "b2", "a3"]


def test_what_is_put_again_keeps_its_place_and_is_served_once() -> None:
    turns = filled("a1", "a2")
    turns.put("a", "a1", 7)
    assert len(turns) == 2
    assert [turns.take(), turns.take()] == [("a1", 7), ("a2", 2)]


def test_what_is_dropped_is_not_served() -> None:
    turns = filled("a1", "b1", "b2")
    for key in ("a1", "b1", "b1", "z9"):
        turns.drop(key)
    assert emptied(turns) == ["b2"]
    turns.put("a", "a1", 1)
    assert emptied(turns) == ["a1"]
    assert len(turns) == 0


def test_the_largest_group_is_crowded_out_by_its_oldest() -> None:
    turns = filled("a1", "b1", "b2", "b3", "c1")
    assert [turns.crowded_out(), turns.crowded_out()] == ["b1", "b2"]
    assert emptied(turns) == ["a1", "b3", "c1"]
