"""A real Chromium, driven by playwright, and what it must never do: break its own rules, or ask anybody but the page's
own server.

Each look has a browser of its own, with an empty profile.
"""

import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import BrowserContext, ConsoleMessage, Page, Request, async_playwright

CHROMIUM = shutil.which("chromium") or ""
PICTURES = Path(__file__).resolve().parent.parent.parent / ".build" / "pictures"
# Nothing that Chromium does by itself: test traffic stays on this machine.
OPTIONS = (
    "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--disable-quic",
)  # fmt: skip
WIDE, NARROW = (1440, 900), (390, 844)


class Look:
    """A page, and what went wrong in it."""

    def __init__(self, context: BrowserContext, page: Page, allowed: Callable[[str], bool]) -> None:
        self.context, self.page = context, page
        self.complaints: list[str] = []  # of the console: errors, and what the content security policy stopped
        self.foreign: list[str] = []  # requests to other origins
        self._allowed = allowed
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.complaints.append(f"uncaught: {error}"))
        page.on("request", self._asked)

    async def text(self, selector: str = "body") -> str:
        return await self.page.inner_text(selector)

    async def shows(self, text: str, seconds: float = 20.0) -> None:
        """Waits until it can be read somewhere."""
        await self.page.get_by_text(text).first.wait_for(timeout=seconds * 1000)

    async def picture(self, name: str) -> Path:
        """Kept for people to look at."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        file = PICTURES / f"{name}.png"
        await self.page.screenshot(path=file)
        return file

    def _said(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.complaints.append(message.text)

    def _asked(self, request: Request) -> None:
        if not request.url.startswith(("data:", "blob:")) and not self._allowed(request.url):
            self.foreign.append(request.url)


@contextlib.asynccontextmanager
async def looking(
    url: str,
    *,
    size: tuple[int, int] = WIDE,
    dark: bool = False,
    language: str = "en-US",
    insecure: bool = False,
    **more: Any,
) -> AsyncIterator[Look]:
    """A new profile that has opened this address. `insecure`: its certificate may be anybody's."""
    origin = urlsplit(url).netloc
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=CHROMIUM, chromium_sandbox=not root, args=list(OPTIONS)
        )
        try:
            context = await browser.new_context(
                viewport={"width": size[0], "height": size[1]},
                color_scheme="dark" if dark else "light",
                locale=language,
                ignore_https_errors=insecure,
                **more,
            )
            look = Look(context, await context.new_page(), lambda asked: urlsplit(asked).netloc == origin)
            await look.page.goto(url)
            yield look
        finally:
            await browser.close()
