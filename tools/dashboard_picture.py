"""Takes the picture of the dashboard in README.md and docs/dashboard.md: docs/dashboard.png, from the real page in
Chromium, on the demo's cluster while it stays up.

Run it when the page changes: `.venv/bin/python -m tools.dashboard_picture`. It needs chromium.
"""

import asyncio
import io
import tempfile
from pathlib import Path

from gpushare.ctl.screen import Screen
from gpushare.demo import afterwards, app, nodes
from gpushare.demo.terminal import Terminal
from tests.support import browser

FILE = Path(__file__).resolve().parent.parent / "docs" / "dashboard.png"
SIZE = (1280, 640)
SECONDS = 45.0  # until figures of all GPUs are there, and a GPU fails


async def main() -> None:
    gpus, terminal = nodes.all_gpus(), Terminal(Screen(io.StringIO(), io.StringIO()), hurry=True)
    with tempfile.TemporaryDirectory(prefix="picture-", dir="/tmp") as folder:
        async with app.prepared(Path(folder), terminal, gpus) as (world, story):
            await story.tell()
            await afterwards.begin(world)
            meanwhile = asyncio.create_task(afterwards.go_on(world, gpus))
            async with app.running_dashboard(world, Path(folder)) as dashboard:
                await dashboard.start()
                await asyncio.sleep(SECONDS)
                async with browser.looking(await dashboard.invited(), size=SIZE) as look:
                    await look.shows("What needs you")
                    await look.page.wait_for_timeout(2000)
                    await look.page.screenshot(path=FILE)
            meanwhile.cancel()


if __name__ == "__main__":
    asyncio.run(main())
