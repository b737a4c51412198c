"""The buffer: ten minutes, so many bytes, and the oldest go first."""

from gpushare.node.influx import buffer
from gpushare.node.influx.buffer import Buffer, Entry


def at(second: float, *lines: bytes) -> Entry:
    return buffer.entry(second, lines or (b"x" * 9,))


def filled(seconds: int, **limits: float) -> Buffer:
    made = Buffer(**limits)  # type: ignore[arg-type]
    for second in range(seconds):
        made.add(at(second), second)
    return made


def test_ten_minutes_are_kept_and_what_is_older_is_dropped_and_counted() -> None:
    made = filled(700)
    assert (made.points, made.dropped) == (601, 99)
    assert made.take(1, 699.0)[0].at == 99.0


def test_bytes_are_bounded_and_the_oldest_go_first() -> None:
    made = filled(10, most_bytes=50)
    assert (made.points, made.dropped) == (5, 5)
    assert made.take(1, 9.0)[0].at == 5.0


def test_what_is_taken_has_at_most_so_many_bytes_but_at_least_one_entry() -> None:
    made = filled(10)
    assert [entry.at for entry in made.take(30, 9.0)] == [0, 1, 2]
    assert [entry.at for entry in made.take(1, 9.0)] == [3]
    assert made.points == 6


def test_what_is_given_back_comes_first_again() -> None:
    made = filled(5)
    taken = made.take(20, 5.0)
    made.add(at(5.0), 5.0)
    made.give_back(taken, 5.0)
    assert [entry.at for entry in made.take(1000, 5.0)] == [0, 1, 2, 3, 4, 5]
    assert (made.points, made.dropped, made.take(1, 5.0)) == (0, 0, [])


def test_what_became_too_old_while_it_was_sent_is_dropped_when_it_is_given_back() -> None:
    made = filled(5)
    taken = made.take(20, 5.0)
    made.give_back(taken, 601.0)
    assert (made.points, made.dropped) == (4, 1)


def test_points_of_one_moment_are_divided_in_two() -> None:
    first, second = buffer.halves(at(3.0, b"a", b"bb", b"ccc"))
    assert (first, second) == (Entry(3.0, (b"a",), 2), Entry(3.0, (b"bb", b"ccc"), 7))
