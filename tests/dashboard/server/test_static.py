"""Files of the browser's part, and no others."""

from collections.abc import AsyncIterator

import pytest

from tests.dashboard.server import world as worlds
from tests.dashboard.server.world import World


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with worlds.local() as made:
        yield made


async def test_a_browser_gets_the_page_and_its_files_with_their_types(world: World) -> None:
    for path, kind in (("", "text/html"), ("static/app.css", "text/css"), ("static/js/main.js", "text/javascript")):
        response = await world.get(path)
        assert (response.status, response.content_type) == (200, kind)
    assert (await world.get("static/app.css")).headers["Content-Encoding"] == "gzip"
    plain = await world.get("static/app.css", {"Accept-Encoding": "identity"})
    assert await plain.text() == worlds.FILES["app.css"]


async def test_a_file_that_has_not_changed_is_not_sent_again(world: World) -> None:
    etag = (await world.get("static/app.css")).headers["ETag"]
    response = await world.get("static/app.css", {"If-None-Match": etag})
    assert (response.status, response.headers["ETag"]) == (304, etag)
    assert (await world.get("static/app.css", {"If-None-Match": '"other"'})).status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/static/../static.py", "/static/..%2fstatic.py", "/static/%2e%2e/static.py",
        "/static/%252e%252e%252fstatic.py",
        "/static/..\\static.py", "/static/..%5cstatic.py", "/static//etc/passwd", "/static/%2fetc%2fpasswd",
        "/static/js/../../../app.py", "/static/./../app.py", "/../../../../etc/passwd", "/static/%c0%ae%c0%ae/app.py",
        "/static/app.css%00.js", "/static/", "/static", "/static/js", "/index.html%00", "/static/index.html/",
        "//evil.example/static/app.css/..",
    ],
)  # fmt: skip
async def test_no_spelling_of_a_path_leads_to_another_file(world: World, path: str) -> None:
    said = await world.raw(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{world.port}\r\nConnection: close\r\n\r\n".encode())
    assert said.split()[1] in (b"404", b"400")
    assert b"import" not in said
    assert b"root:" not in said


async def test_what_is_not_there_is_said_in_one_sentence(world: World) -> None:
    response = await world.get("nowhere")
    assert response.status == 404
    assert (await response.json())["error"] == "there is nothing at this address"
    page = await world.get("nowhere/<script>", {"Accept": "text/html"})
    assert page.content_type == "text/html"
    assert "<script>" not in await page.text()
