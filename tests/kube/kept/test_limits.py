"""Many time limits, one timer."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from unittest import mock

from gpushare.kube.kept.limits import Limits
from tests.adversary.clock import Loop


def run(life: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """In virtual time."""
    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(life())


def test_each_limit_is_over_at_its_time_and_none_that_was_ended() -> None:
    async def life() -> None:
        limits, told, begun = Limits(4.0), list[tuple[str, float]](), asyncio.get_running_loop().time()

        def tell(name: str) -> Callable[[], None]:
            return lambda: told.append((name, asyncio.get_running_loop().time() - begun))

        limits.begin(tell("first"))
        ended = limits.begin(tell("ended"))
        await asyncio.sleep(1)
        limits.begin(tell("second"))
        limits.end(ended)
        await asyncio.sleep(10)
        late = limits.begin(tell("late"))
        await asyncio.sleep(5)
        limits.end(late)
        assert told == [("first", 4.0), ("second", 5.0), ("late", 15.0)]

    run(life)


def test_a_limit_may_begin_the_next_and_a_failing_one_keeps_no_other_from_its_time() -> None:
    async def life() -> None:
        limits, told = Limits(1.0), list[str]()
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(str(context["exception"])))

        def fail() -> None:
            limits.begin(lambda: told.append("next"))
            raise ValueError("a bug")

        limits.begin(fail)
        await asyncio.sleep(0.5)
        limits.begin(lambda: told.append("other"))
        await asyncio.sleep(5)
        assert told == ["a bug", "other", "next"]

    run(life)


def test_any_number_of_limits_needs_one_timer_at_a_time() -> None:
    loop = Loop()
    with mock.patch.object(loop, "call_at", wraps=loop.call_at) as timers:

        async def life() -> None:
            limits = Limits(10.0)
            for _ in range(1000):
                limits.end(limits.begin(lambda: None))

        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(life())
    assert timers.call_count == 1
