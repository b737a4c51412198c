"""A person at this machine: a link that works once, a cookie nobody else gets, and a session that ends."""

from collections.abc import AsyncIterator

import pytest

from gpushare.dashboard.server.sessions import IDLE_SECONDS
from tests.dashboard.server import world as worlds
from tests.dashboard.server.world import World


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with worlds.local() as made:
        yield made


def path_of(link: str) -> str:
    return link.partition("/login")[1].removeprefix("/") + link.partition("/login")[2]


async def test_the_link_logs_in_and_leads_to_the_dashboard(world: World) -> None:
    assert (await world.get("api/me")).status == 401
    response = await world.get(path_of(world.links[0]))
    assert (response.status, response.headers["Location"]) == (303, "./")
    me = await (await world.get("api/me")).json()
    assert {key: me[key] for key in ("user", "mode", "cluster", "everything", "program")} == {
        "user": "ada", "mode": "local", "cluster": "test", "everything": True, "program": "gpushare"
    }  # fmt: skip


async def test_a_link_works_once_and_then_the_terminal_shows_another(world: World) -> None:
    await world.login()
    world.http.cookie_jar.clear()
    response = await world.get(path_of(world.links[0]), {"Accept": "text/html"})
    assert response.status == 403
    assert "Set-Cookie" not in response.headers
    assert "terminal" in await response.text()
    assert (await world.get("api/me")).status == 401
    assert len(world.links) == 2
    await world.login()
    assert (await world.get("api/me")).status == 200


async def test_a_link_is_too_old_after_ten_minutes(world: World) -> None:
    world.now += 599.0
    await world.get("login?token=wrong")
    assert len(world.links) == 1  # the one in the terminal still works
    world.now += 1.0
    assert (await world.get(path_of(world.links[0]))).status == 403
    assert len(world.links) == 2
    await world.login()


@pytest.mark.parametrize("token", ["", "x", "%00", "%F0%9F%98%80"])
async def test_a_wrong_token_logs_nobody_in_and_does_not_spend_the_good_one(world: World, token: str) -> None:
    assert (await world.get(f"login?token={token}")).status == 403
    assert (await world.get("login")).status == 403
    await world.login()


async def test_the_cookie_is_for_this_site_and_not_for_scripts(world: World) -> None:
    response = await world.get(path_of(world.links[0]))
    cookie = response.headers["Set-Cookie"]
    assert cookie.startswith(f"gpushare-session-{world.port}=")  # two dashboards on one machine have one cookie each
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert "Path=/" in cookie
    assert "Domain" not in cookie


async def test_an_id_that_somebody_has_prepared_is_worth_nothing_before_and_after_a_login(world: World) -> None:
    prepared = {"Cookie": f"gpushare-session-{world.port}=prepared"}
    response = await world.get(path_of(world.links[0]), prepared)
    assert "prepared" not in response.headers["Set-Cookie"]
    world.http.cookie_jar.clear()
    assert (await world.get("api/me", prepared)).status == 401


async def test_a_session_that_nobody_uses_ends_after_twelve_hours(world: World) -> None:
    await world.login()
    world.now += IDLE_SECONDS - 1
    assert (await world.get("api/me")).status == 200
    world.now += IDLE_SECONDS - 1
    assert (await world.get("api/me")).status == 200
    world.now += IDLE_SECONDS
    assert (await world.get("api/me")).status == 401
    assert len(world.links) == 2  # and the terminal shows how to come back


async def test_who_logs_out_is_out_whatever_the_browser_keeps(world: World) -> None:
    response = await world.get(path_of(world.links[0]))
    kept = {"Cookie": response.headers["Set-Cookie"].partition(";")[0]}
    assert (await world.get("api/me", kept)).status == 200
    left = await world.post("logout")
    assert (left.status, left.headers["Location"]) == (303, "./")
    world.http.cookie_jar.clear()
    assert (await world.get("api/me", kept)).status == 401


async def test_nothing_of_the_cluster_is_said_without_a_session(world: World) -> None:
    for path in ("api/snapshot", "api/stream", "api/node/a", "api/why/a/b", "api/waiting", "api/nothing"):
        response = await world.get(path)
        assert response.status == 401
        said = await response.json()
        assert (said["login"], said["mode"]) == (True, "local")
        assert said["error"]
    assert (await world.post("api/whatif", b"{}")).status == 401
    assert world.asked == []


async def test_names_in_paths_come_to_the_page_as_they_are(world: World) -> None:
    await world.login()
    assert (await (await world.get("api/why/a%2Fb/c%20d")).json())["parts"] == ["a/b", "c d"]
    assert (await world.get("api/why/a")).status == 404
    assert (await world.get("api/why/a/b/c")).status == 404
    assert (await world.get("api/node/missing")).status == 404


async def test_while_the_cluster_is_read_the_page_is_told_so(world: World) -> None:
    await world.login()
    world.not_ready = "pods are being read"
    response = await world.get("api/snapshot")
    assert (response.status, (await response.json())["why"]) == (503, "pods are being read")
    assert (await world.get("api/me")).status == 200
    assert (await world.get("healthz")).status == 404  # probes are for kubelet


async def test_a_snapshot_that_is_still_true_is_not_sent_again(world: World) -> None:
    await world.login()
    response = await world.get("api/snapshot")
    assert (await response.json(), response.headers["ETag"]) == ({"v": 1}, '"e.0"')
    assert (await world.get("api/snapshot", {"If-None-Match": '"e.0"'})).status == 304
    world.ticks.send("x")
    assert (await world.get("api/snapshot", {"If-None-Match": '"e.0"'})).status == 200
    plain = await world.get("api/snapshot", {"Accept-Encoding": "identity"})
    assert await plain.read() == b'{"v":1}'
