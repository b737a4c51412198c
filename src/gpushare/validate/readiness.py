"""What the node part of this machine says of itself: the body of its /readyz is the reason."""

import asyncio
import os
from typing import Final

import aiohttp

from gpushare.validate.rules.plugin import LONGEST, Answered

URL: Final = "http://127.0.0.1:12346/readyz"
LIMIT_SECONDS: Final = 3.0
SILENT: Final = "no answer within {seconds:g} s"


async def ask(url: str = URL, limit: float = LIMIT_SECONDS) -> Answered:
    try:
        async with (
            asyncio.timeout(limit),
            aiohttp.ClientSession() as session,
            session.get(url, allow_redirects=False) as answer,
        ):
            text = (await answer.content.read(4 * LONGEST)).decode(errors="replace")
            return Answered(answer.status, text.strip())
    except TimeoutError:
        return Answered(0, SILENT.format(seconds=limit))
    except (aiohttp.ClientError, OSError) as error:
        return Answered(0, _why(error, url))


def _why(error: Exception, url: str) -> str:
    number = getattr(getattr(error, "os_error", error), "errno", None)  # asyncio's own text names no cause
    return f"{os.strerror(number) if number else error} ({url.removeprefix('http://')})"
