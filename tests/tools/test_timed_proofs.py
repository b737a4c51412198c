"""A proof of time gets a second chance on a busy machine; a proof that something is right never does."""

import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.e2e.harness import timed
from tests.e2e.harness.figures import Figures

LIMIT = 1.0


class Part:
    """Stands in for a part of the cluster: remembers what was done to it."""

    def __init__(self, done: list[str]) -> None:
        self.done = done

    async def clean_up(self) -> None:
        self.done.append("cleaned up")

    @contextlib.asynccontextmanager
    async def anew(self) -> AsyncIterator["Part"]:
        yield Part([*self.done, "anew"])


class Proof:
    """Takes so many seconds each time, or finds something wrong where that is None."""

    def __init__(self, *seconds: float | None) -> None:
        self.left, self.ran_in = list(seconds), list[list[str]]()
        self.figures = Figures()

    async def __call__(self) -> None:
        await self.repeated(Part([]), self.figures)

    @property
    def repeated(self) -> timed.Proof[Part]:
        async def prove(world: Part, figures: Figures) -> None:
            """It is bound soon."""
            self.ran_in.append(list(world.done))
            seconds = self.left.pop(0)
            assert seconds is not None, "a GPU was given twice"
            timed.tell(figures, "waiting", f"{seconds} s", in_time=seconds < LIMIT)

        return timed.repeated_once(prove)


async def test_a_proof_in_time_runs_once() -> None:
    proof = Proof(0.5)
    await proof()
    assert proof.figures.lines == ["  waiting: 0.5 s"]


async def test_one_that_was_too_slow_is_repeated_in_an_empty_cluster_and_both_figures_are_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    proof = Proof(1.3, 0.5)
    await proof()
    assert proof.ran_in == [[], ["cleaned up", "anew"]]
    assert proof.figures.lines == ["  waiting: TOO SLOW: 1.3 s", "  waiting: 0.5 s"]
    assert capsys.readouterr().out == "repeated once: waiting: 1.3 s\n"


async def test_one_that_is_too_slow_again_fails_with_both_figures_told() -> None:
    proof = Proof(1.3, 1.2, 0.5)
    with pytest.raises(timed.TooSlow, match=r"waiting: 1\.2 s"):
        await proof()
    assert proof.figures.lines == ["  waiting: TOO SLOW: 1.3 s", "  waiting: TOO SLOW: 1.2 s"]


async def test_one_that_finds_something_wrong_is_not_repeated() -> None:
    proof = Proof(None, 0.5)
    with pytest.raises(AssertionError, match="given twice"):
        await proof()
    assert proof.left == [0.5]


async def test_what_goes_wrong_in_the_second_run_is_not_forgiven() -> None:
    proof = Proof(1.3, None, 0.5)
    with pytest.raises(AssertionError, match="given twice"):
        await proof()
    assert proof.left == [0.5]


def test_the_test_keeps_its_name_and_its_words() -> None:
    repeated = Proof().repeated
    assert (repeated.__name__, repeated.__doc__) == ("prove", "It is bound soon.")
