"""Answers that say what is wrong: a status, a sentence, why, and what to try. The browser's part shows these three."""

import html
from typing import Final

import msgspec
from aiohttp import web

PAGE: Final = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>gpushare</title><link rel="stylesheet" href="static/app.css"></head>
<body><main><h1>gpushare</h1><p>{error}</p><p>{why}</p><p>{way}</p><p><a href="./">Dashboard</a></p></main>
</body></html>
"""


class Problem(Exception):
    """Raised wherever a request cannot be answered. `login`: a session would help; the way to log in
    is that of this mode. Never with a token in it."""

    def __init__(
        self,
        status: int,
        error: str,
        why: str = "",
        way: str = "",
        *,
        login: str = "",
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(status, error)
        self.status, self.error, self.why, self.way, self.login = status, error, why, way, login
        self.headers = headers or {}


def as_json(problem: Problem) -> web.Response:
    body: dict[str, object] = {"error": problem.error, "why": problem.why, "try": problem.way}
    body |= {"login": True, "mode": problem.login} if problem.login else {}
    return web.Response(
        status=problem.status, body=msgspec.json.encode(body), content_type="application/json", headers=problem.headers
    )


def as_page(problem: Problem) -> web.Response:
    """For a person whose browser shows the answer itself."""
    texts = {name: html.escape(text) for name, text in
             (("error", problem.error), ("why", problem.why), ("way", problem.way))}  # fmt: skip
    return web.Response(
        status=problem.status, text=PAGE.format(**texts), content_type="text/html", headers=problem.headers
    )
