"""Which waiting pods are looked at, and when: those that a scheduler has tried at once, others when there is time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec
import pytest

from gpushare.core.facts import request
from gpushare.core.facts.model import PodFacts
from gpushare.core.ledger.ledger import Ledger
from gpushare.extender.events import Announcer
from gpushare.kube.events import Recorder
from tests.support.builders import api_pod
from tests.support.wait import eventually


class Stage:
    def __init__(self) -> None:
        self.busy, self.told = True, [""]
        self.told.clear()
        self.announcer = Announcer(cast(Recorder, self), Ledger(), lambda: self.busy)

    def record(self, **event: Any) -> None:
        self.told.append(event["name"])


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage()
    running = asyncio.create_task(stage.announcer.run(lambda _: None))
    yield stage
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


def pod(name: str, *, tried: str = "") -> PodFacts:
    return msgspec.structs.replace(request.facts(api_pod(5, name=name), None), unschedulable=tried)


async def test_a_pod_that_was_tried_is_told_of_while_schedulers_ask_and_a_new_one_after_that(stage: Stage) -> None:
    stage.announcer.waits(pod("new"))
    stage.announcer.waits(pod("tried", tried="0/1 nodes"))
    await eventually(lambda: stage.told == ["tried"])
    await asyncio.sleep(0.25)
    assert stage.told == ["tried"]
    stage.busy = False
    await asyncio.sleep(0.25)
    assert not stage.announcer._untried


async def test_a_new_pod_that_is_bound_meanwhile_is_never_looked_at(stage: Stage) -> None:
    stage.announcer.waits(pod("new"))
    stage.announcer.gone("uid-new")
    assert not stage.announcer._untried


async def test_a_new_pod_is_told_of_once_it_was_tried(stage: Stage) -> None:
    stage.announcer.waits(pod("new"))
    stage.announcer.waits(pod("new", tried="0/1 nodes"))
    await eventually(lambda: stage.told == ["new"])
