"""Work beside a component's own may fail; the component goes on."""

import asyncio

import pytest

from gpushare.obs import beside
from tests.support.wait import eventually


async def test_a_bug_is_logged_and_the_work_begins_again_later(caplog: pytest.LogCaptureFixture) -> None:
    begun, slept = [], []

    async def broken() -> None:
        begun.append(1)
        raise ZeroDivisionError

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await asyncio.sleep(0)

    task = asyncio.create_task(beside.beside(broken, sleep=sleep))
    await eventually(lambda: len(begun) > 1)
    assert "ZeroDivisionError" in caplog.records[0].__dict__["fields"]["error"]
    assert set(slept) == {beside.AGAIN_SECONDS}
    assert not task.done(), "else who waits for the first end would end"
    task.cancel()
