"""What no page of ours sends is refused, and every answer tells the browser to be careful."""

from collections.abc import AsyncIterator

import pytest

from gpushare.dashboard.server import guard
from gpushare.dashboard.server.problems import Problem
from tests.dashboard.server import world as worlds
from tests.dashboard.server.world import World

OWN = {"Host": "127.0.0.1:8080"}
POSTED = {**OWN, "Origin": "http://127.0.0.1:8080"}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with worlds.local() as made:
        yield made


def refused(method: str, path: str, headers: dict[str, str], hosts: guard.Hosts | None = None) -> int:
    try:
        guard.check(method, path, headers, hosts or guard.local(8080))
    except Problem as problem:
        return problem.status
    return 0


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost:8080", "LOCALHOST:8080", "[::1]:8080"])
def test_this_machines_names_are_answered(host: str) -> None:
    assert refused("GET", "/", {"Host": host}) == 0


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8080", "127.0.0.1", "127.0.0.1:80", "127.0.0.1.evil.example:8080", "",
     "localhost:8080@evil.example", "127.1:8080", "0.0.0.0:8080", "127.0.0.1:8080 evil"],
)  # fmt: skip
def test_a_name_that_is_not_ours_is_refused_even_if_it_has_our_address(host: str) -> None:
    assert refused("GET", "/", {"Host": host}) == 421
    assert refused("GET", "/api/me", {"Host": host}) == 421
    assert refused("GET", "/", {}) == 421


def test_another_loopback_address_is_answered_if_it_listens_there() -> None:
    assert refused("GET", "/", {"Host": "127.0.0.2:8080"}, guard.local(8080, "127.0.0.2")) == 0
    assert refused("GET", "/", {"Host": "127.0.0.2:8080"}) == 421


def test_who_forwards_another_port_is_told_how_to() -> None:
    with pytest.raises(Problem) as caught:
        guard.check("GET", "/", {"Host": "localhost:9000"}, guard.local(8080))
    assert "ssh -L 8080:127.0.0.1:8080" in caught.value.way


def test_in_a_cluster_it_knows_the_names_it_was_told_and_forwarded_ports() -> None:
    hosts = guard.in_cluster(8443, ["gpus.example.com", "10.0.0.7:9443", "[fd00::7]"], behind_proxy=False)
    for host in ("gpus.example.com", "GPUS.example.com:443", "gpus.example.com:8443", "10.0.0.7:9443", "[fd00::7]:8443",
                 "localhost:12345"):  # fmt: skip
        assert refused("GET", "/api/me", {"Host": host}, hosts) == 0, host
    for host in ("10.0.0.7", "gpus.example.com:80", "other.example.com", "localhost.evil.example"):
        assert refused("GET", "/api/me", {"Host": host}, hosts) == 421, host


def test_a_page_on_another_port_of_this_machine_is_not_ours() -> None:
    hosts = guard.in_cluster(8443, ["gpus.example.com"], behind_proxy=False)
    asked = {"Host": "localhost:8443", "Origin": "https://localhost:8443"}
    assert refused("POST", "/login", asked, hosts) == 0
    assert refused("POST", "/login", asked | {"Origin": "https://localhost:3000"}, hosts) == 403
    assert refused("POST", "/login", asked | {"Origin": "http://localhost:8443"}, hosts) == 403
    assert refused("GET", "/api/me", asked | {"Origin": "https://localhost:3000"}, hosts) == 403


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1:8080", "http://127.0.0.1:9", "http://127.0.0.1", ""]
)
@pytest.mark.parametrize("path", ["/login", "/logout", "/api/whatif"])
def test_a_form_or_script_of_another_page_is_refused(origin: str, path: str) -> None:
    assert refused("POST", path, POSTED) == 0
    assert refused("POST", path, {**OWN, "Origin": origin}) == 403
    assert refused("POST", path, OWN) == 403


def test_a_form_of_our_own_page_is_accepted_though_the_browser_names_no_page() -> None:
    """As browsers do where no referrer is sent. A page that hides its origin is another site for them."""
    nameless = {**OWN, "Origin": "null"}
    assert refused("POST", "/login", {**nameless, "Sec-Fetch-Site": "same-origin"}) == 0
    for site in ("cross-site", "same-site", "none", ""):
        assert refused("POST", "/login", {**nameless, "Sec-Fetch-Site": site}) == 403
    assert refused("GET", "/api/me", {**nameless, "Sec-Fetch-Site": "same-origin"}) == 403


def test_a_script_of_another_page_cannot_read_the_api() -> None:
    assert refused("GET", "/api/me", {**OWN, "Sec-Fetch-Site": "same-origin"}) == 0
    assert refused("GET", "/api/me", {**OWN, "Sec-Fetch-Site": "cross-site"}) == 403
    assert refused("GET", "/api/me", {**OWN, "Sec-Fetch-Site": "same-site"}) == 403
    assert refused("GET", "/api/snapshot", {**OWN, "Origin": "http://evil.example"}) == 403
    assert refused("POST", "/api/whatif", {**POSTED, "Sec-Fetch-Site": "cross-site"}) == 403


def test_a_link_on_another_page_may_lead_here() -> None:
    assert refused("GET", "/", {**OWN, "Sec-Fetch-Site": "cross-site"}) == 0


@pytest.mark.parametrize("method", ["HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"])
async def test_other_methods_than_get_are_not_answered(world: World, method: str) -> None:
    await world.login()
    for path in ("/", "/api/snapshot", "/api/whatif", "/static/app.css"):
        async with world.http.request(method, world.base + path) as response:
            assert response.status == 405
            assert "GET" in response.headers["Allow"]
    assert (await world.post("api/snapshot")).status == 405
    assert (await world.post("")).status == 405


@pytest.mark.parametrize(
    "text",
    [
        b"GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
        b"GET /nowhere HTTP/1.1\r\nHost: 127.0.0.1:%PORT%\r\nConnection: close\r\n\r\n",
        b"GET /api/me HTTP/1.1\r\nHost: 127.0.0.1:%PORT%\r\nConnection: close\r\n\r\n",
        b"GET /login?token=x HTTP/1.1\r\nHost: 127.0.0.1:%PORT%\r\nConnection: close\r\n\r\n",
        b"DELETE / HTTP/1.1\r\nHost: 127.0.0.1:%PORT%\r\nConnection: close\r\n\r\n",
        b"this is not HTTP\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1:%PORT%\r\nX: " + b"x" * 20_000 + b"\r\n\r\n",
        b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: 127.0.0.1:%PORT%\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 1000 + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1:%PORT%\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
        b"POST /logout HTTP/1.1\r\nHost: 127.0.0.1:%PORT%\r\nContent-Length: -1\r\n\r\n",
    ],
)
async def test_every_answer_has_the_headers_also_those_to_what_cannot_be_read(world: World, text: bytes) -> None:
    said = await world.raw(text.replace(b"%PORT%", str(world.port).encode()))
    head = said.partition(b"\r\n\r\n")[0].decode()
    status = int(head.split()[1])
    assert 400 <= status < 500
    for name, value in HEADERS.items():
        assert f"\r\n{name}: {value}" in head
    assert "\r\nCache-Control: no-store" in head
    assert "aiohttp" not in head


async def test_good_answers_have_the_headers_too(world: World) -> None:
    await world.login()
    for path, kept in (
        ("", "no-cache"),
        ("api/me", "no-store"),
        ("api/snapshot", "no-store"),
        ("api/node/a", "no-store"),
    ):
        response = await world.get(path)
        assert response.status == 200
        assert {name: response.headers.get(name) for name in HEADERS} == HEADERS
        assert response.headers["Cache-Control"] == kept


async def test_a_body_that_is_too_large_is_refused_and_others_are_answered(world: World) -> None:
    await world.login()
    assert (await world.post("api/whatif", b"x" * (256 * 1024))).status == 200
    assert (await world.post("api/whatif", b"x" * (256 * 1024 + 1))).status == 413
    packed = await world.post("api/whatif", b"\x1f\x8b" + b"x" * 100, {"Content-Encoding": "gzip"})
    assert packed.status == 200  # as it came: it is not unpacked
    assert world.asked[-1][0].body.startswith(b"\x1f\x8b")


async def test_what_if_needs_a_header_that_no_form_can_send(world: World) -> None:
    await world.login()
    assert (await world.post("api/whatif", b"{}", {guard.MARK: ""})).status == 403
    assert (await world.post("api/whatif", b"{}", {"Content-Type": "text/plain"})).status == 403
    assert (await world.post("api/whatif", b"{}")).status == 200


@pytest.mark.parametrize(
    ("text", "status"),
    [(b"GET / HTTP/1.1\r\nHost: \xff\xfe\r\nConnection: close\r\n\r\n", b"421"),
     (b"GET /api/me HTTP/1.1\r\nHost: \xed\x95\x9c\r\nConnection: close\r\n\r\n", b"421")],
)  # fmt: skip
async def test_a_host_that_is_no_text_is_refused_like_any_other(world: World, text: bytes, status: bytes) -> None:
    head, _, body = (await world.raw(text)).partition(b"\r\n\r\n")
    assert head.split()[1] == status
    assert b"this dashboard is not called ?" in body


@pytest.mark.parametrize("path", ["api%2F", "api%2Fwaiting", "api%2fnode%2fn"])
async def test_a_path_whose_slashes_are_written_as_numbers_leads_nowhere(world: World, path: str) -> None:
    await world.login()
    head = await world.raw(
        f"GET /{path} HTTP/1.1\r\nHost: 127.0.0.1:{world.port}\r\nConnection: close\r\nCookie: ".encode()
        + "; ".join(f"{one.key}={one.value}" for one in world.http.cookie_jar).encode()
        + b"\r\n\r\n"
    )
    assert head.split()[1] == b"404"
