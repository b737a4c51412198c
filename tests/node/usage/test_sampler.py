"""What GPUs do is published once an interval, whatever the driver does; an old figure is never shown as a new one."""

import asyncio
from collections.abc import Callable, Iterable, Mapping

import pytest

from gpushare.core.facts.model import Gpu, NodeFacts, Pin
from gpushare.gpu.device import Device, Link, Versions, Xid
from gpushare.gpu.sample import Pass, Process, Sample
from gpushare.node.pods import NodePods
from gpushare.node.publishing.desired import Offered
from gpushare.node.usage.model import Owner, Usage
from gpushare.node.usage.sampler import OUR_FAULT, Owners, Sampler
from gpushare.obs import errors
from tests.support.tasks import beside
from tests.support.wait import eventually

SECONDS = 0.01  # an interval, on the clock of the event loop; ages are on the clock of the test
FAILURE = errors.not_asked("the NVIDIA driver fails", "a test says so", "wait")
OFFERED = Offered(NodeFacts("gpu-a", "MiB", Pin.DIRECT, (Gpu(0, "GPU-0", 16276), Gpu(1, "GPU-1", 16276))), {})


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now

    def wall(self) -> float:
        return 1_700_000_000 + self.now


class Driver:
    """Answers what the test says, from now on: a pass, an error, or nothing while there is nothing to say."""

    def __init__(self) -> None:
        self.notes: tuple[str, ...] = ()
        self.asked = 0
        self.answer: Pass | Exception | None = taken(50)
        self.once = False
        self.answered = asyncio.Event()

    async def sample(self) -> Pass:
        self.asked += 1
        while self.answer is None:
            self.answered.clear()
            await self.answered.wait()
        answer = self.answer
        if self.once:
            self.answer = None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def say(self, answer: Pass | Exception | None) -> None:
        self.answer = answer
        self.answered.set()

    def say_once(self, answer: Pass) -> None:
        """And nothing to the next question."""
        self.once = True
        self.say(answer)

    async def devices(self) -> list[Device]:
        raise NotImplementedError  # nobody asks here

    async def links(self) -> list[Link]:
        raise NotImplementedError  # nobody asks here

    async def versions(self) -> Versions:
        raise NotImplementedError  # nobody asks here

    async def xids(self) -> list[Xid]:
        raise NotImplementedError  # nobody asks here

    async def close(self) -> None: ...


class Nobody:
    """Knows every process, and says that it is of no pod."""

    unknown = ""

    def of(self, pids: Iterable[int], pods: object) -> Mapping[int, Owner]:
        return {}


class Reused(Nobody):
    """Each time they are asked for, pids are those of other processes."""

    asked = 0

    def of(self, pids: Iterable[int], pods: object) -> Mapping[int, Owner]:
        self.asked += 1
        return {pid: Owner("uid", f"{self.asked}") for pid in pids}


class Watched:
    """A sampler, its driver, and all that it has published."""

    def __init__(self, offered: Callable[[], Offered | None] = lambda: OFFERED, owners: Owners | None = None) -> None:
        self.clock, self.driver = Clock(), Driver()
        self.sampler = Sampler(
            "gpu-a",
            self.driver,
            offered,
            NodePods(),
            owners or Nobody(),
            seconds=SECONDS,
            clock=self.clock,
            now=self.clock.wall,
        )
        self.published: list[Usage] = []
        self.sampler.listeners.append(self.published.append)

    async def next(self) -> Usage:
        """What is published after all that was said before. What is being published now may have been decided before,
        so the second one counts."""
        count = len(self.published) + 2
        await eventually(lambda: len(self.published) >= count)
        return self.published[-1]


def taken(temperature: int) -> Pass:
    return Pass("550.54.14", (Sample("GPU-0", 0, temperature=temperature, processes=(Process(1),)),))


def temperatures(usage: Usage) -> list[int | None]:
    """Of GPUs with figures."""
    return [gpu.sample.temperature for gpu in usage.gpus if gpu.sample is not None]


async def test_fresh_figures_are_published_with_their_time() -> None:
    watched = Watched()
    async with beside(watched.sampler.run()):
        usage = await watched.next()
    assert (usage.node, usage.driver, usage.failure) == ("gpu-a", "550.54.14", "")
    assert usage.sampled_at == watched.clock.wall()
    assert temperatures(usage) == [50]
    assert usage is not watched.published[-2], "once an interval"


async def test_a_gpu_that_is_not_in_the_pass_has_no_figures_at_once() -> None:
    watched = Watched()
    async with beside(watched.sampler.run()):
        usage = await watched.next()
        assert [gpu.sample is None for gpu in usage.gpus] == [False, True]
        watched.driver.say(Pass("550.54.14", (Sample("GPU-1", 1, temperature=60),)))
        usage = await watched.next()
        assert [gpu.sample is None for gpu in usage.gpus] == [True, False]


async def test_new_figures_replace_old_ones_in_the_next_interval() -> None:
    watched = Watched()
    async with beside(watched.sampler.run()):
        await watched.next()
        watched.driver.say(taken(61))
        watched.clock.now += SECONDS
        usage = await watched.next()
    assert (temperatures(usage), usage.sampled_at) == ([61], watched.clock.wall())


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (None, "the driver has not answered for 0 s"),
        (FAILURE, "the NVIDIA driver fails"),
        (ZeroDivisionError(), OUR_FAULT),
    ],
)
async def test_figures_are_left_out_after_two_and_a_half_intervals(answer: Exception | None, failure: str) -> None:
    watched = Watched()
    async with beside(watched.sampler.run()):
        then = (await watched.next()).sampled_at
        watched.driver.say(answer)
        await eventually(lambda: watched.driver.asked > 2)
        await watched.next()
        watched.clock.now += 2.4 * SECONDS
        usage = await watched.next()
        assert (temperatures(usage), usage.failure, usage.sampled_at) == ([50], "", then)
        watched.clock.now += 0.2 * SECONDS
        usage = await watched.next()
        assert (temperatures(usage), usage.failure) == ([], failure)
        assert [gpu.uuid for gpu in usage.gpus] == ["GPU-0", "GPU-1"], "what pods were given is still published"
        assert usage.sampled_at == then, "so that everybody sees how old they are"


async def test_whose_processes_are_is_asked_once_for_each_pass_because_pids_are_reused() -> None:
    owners = Reused()
    watched = Watched(owners=owners)
    watched.driver.say_once(taken(50))
    async with beside(watched.sampler.run()):
        await watched.next()
        assert temperatures(await watched.next()) == [50]
    assert owners.asked == 1


async def test_a_driver_that_hangs_is_asked_once_and_others_hear_of_it_each_interval() -> None:
    watched = Watched()
    watched.driver.say(None)
    async with beside(watched.sampler.run()):
        await watched.next()
        usage = await watched.next()
        assert watched.driver.asked == 1
    assert (usage.sampled_at, usage.driver, temperatures(usage)) == (None, "", [])
    assert usage.failure == "the driver has not answered for 0 s"


async def test_when_the_driver_answers_again_its_figures_are_published_again() -> None:
    watched = Watched()
    async with beside(watched.sampler.run()):
        await watched.next()
        watched.driver.say(FAILURE)
        await watched.next()
        watched.clock.now += 60
        assert (await watched.next()).failure == FAILURE.what
        watched.driver.say(taken(44))
        usage = await watched.next()
    assert (temperatures(usage), usage.failure, usage.sampled_at) == ([44], "", watched.clock.wall())


async def test_an_answer_that_took_too_long_is_as_old_as_its_question() -> None:
    watched = Watched()
    watched.driver.say(None)
    async with beside(watched.sampler.run()):
        asked_at = watched.clock.wall()
        await watched.next()
        watched.clock.now += 3 * SECONDS
        watched.driver.say_once(taken(99))
        await eventually(lambda: watched.driver.asked == 2)
        usage = await watched.next()
    assert (temperatures(usage), usage.sampled_at) == ([], asked_at)


async def test_nothing_is_published_before_the_node_has_said_what_it_has() -> None:
    offered: list[Offered] = []
    watched = Watched(lambda: offered[0] if offered else None)
    async with beside(watched.sampler.run()):
        await eventually(lambda: watched.driver.asked > 2)
        assert watched.sampler.usage is None
        offered.append(OFFERED)
        assert temperatures(await watched.next()) == [50]


async def test_a_listener_that_fails_keeps_nothing_from_the_others(caplog: pytest.LogCaptureFixture) -> None:
    def broken(usage: Usage) -> None:
        raise ZeroDivisionError

    watched = Watched()
    watched.sampler.listeners.insert(0, broken)
    async with beside(watched.sampler.run()):
        assert temperatures(await watched.next()) == [50]
    assert "the use of GPUs cannot be published" in caplog.text


async def test_what_cannot_be_joined_is_shown_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched()
    async with beside(watched.sampler.run()):
        await watched.next()
        monkeypatch.setattr(watched.sampler, "_owners", None)  # a bug
        await eventually(lambda: watched.sampler.usage is None)
        monkeypatch.undo()
        assert temperatures(await watched.next()) == [50]


async def test_a_failure_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched()
    watched.driver.say(FAILURE)
    async with beside(watched.sampler.run()):
        await watched.next()
        await watched.next()
    assert caplog.text.count("the use of GPUs cannot be read") == 1
