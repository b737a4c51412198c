"""Work beside a component's own may fail; the component goes on."""

import asyncio

import pytest

from gpushare.obs.beside import beside
from tests.support.wait import eventually


async def test_a_bug_is_logged_and_the_work_counts_as_not_ended(caplog: pytest.LogCaptureFixture) -> None:
    async def broken() -> None:
        raise ZeroDivisionError

    task = asyncio.create_task(beside(broken(), "GPUNodes are not read any more"))
    await eventually(lambda: "GPUNodes are not read any more" in caplog.text)
    assert not task.done(), "else who waits for the first end would end"
    task.cancel()
