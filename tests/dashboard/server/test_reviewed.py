"""In a cluster: the API server says who somebody is and what they may see, and is asked again."""

import base64
import json
from collections.abc import AsyncIterator

import pytest

from gpushare.dashboard.server.access import rights
from gpushare.dashboard.server.access.reviewed import AUDIENCE
from tests.dashboard.server import world as worlds
from tests.dashboard.server.world import RIGHTS, TOKENS, Cluster, World, frames
from tests.support.scripted_api import refuse

TOKEN = "very-secret-token"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture
async def made() -> AsyncIterator[tuple[World, Cluster]]:
    async with worlds.cluster(behind_proxy=False) as found:
        yield found


@pytest.fixture
async def proxied() -> AsyncIterator[tuple[World, Cluster]]:
    async with worlds.cluster(behind_proxy=True) as found:
        yield found


async def login(world: World, token: str = TOKEN) -> dict[str, str]:
    """The header of the session."""
    response = await world.post("login", f"token={token}".encode(), FORM)
    assert (response.status, response.headers["Location"]) == (303, "./")
    return {"Cookie": response.headers["Set-Cookie"].partition(";")[0]}


async def test_a_token_logs_in_and_is_forgotten(made: tuple[World, Cluster]) -> None:
    world, cluster = made
    session = await login(world)
    me = await (await world.get("api/me", session)).json()
    assert (me["user"], me["mode"], me["everything"]) == ("bob", "cluster", False)
    (review,) = [asked.body["spec"] for asked in cluster.server.asked if "token" in asked.body["spec"]]
    assert review == {"token": TOKEN, "audiences": [AUDIENCE]}
    assert TOKEN not in repr([vars(world.sessions), [vars_of(one) for one in world.sessions._by_key.values()]])


def vars_of(session: object) -> list[object]:
    return [getattr(session, name) for name in session.__slots__]  # type: ignore[attr-defined]


async def test_the_log_says_who_and_never_a_token_or_an_id(
    made: tuple[World, Cluster], caplog: pytest.LogCaptureFixture
) -> None:
    world, cluster = made
    with caplog.at_level("DEBUG"):
        session = await login(world)
        await world.get("api/me", session)
        cluster.user = None
        await world.post("login", b"token=another-secret", FORM)
    said = " ".join(f"{record.getMessage()} {vars(record).get('fields')}" for record in caplog.records)
    assert "'user': 'bob'" in said
    for secret in (TOKEN, "another-secret", session["Cookie"].partition("=")[2]):
        assert secret not in said


async def test_the_cookie_goes_over_https_only_and_to_no_script(made: tuple[World, Cluster]) -> None:
    world, _ = made
    response = await world.post("login", f"token={TOKEN}".encode(), FORM)
    cookie = response.headers["Set-Cookie"]
    assert cookie.startswith("__Host-gpushare-session=")
    for flag in ("Secure", "HttpOnly", "SameSite=Strict", "Path=/"):
        assert flag in cookie
    assert "Domain" not in cookie


async def test_a_token_that_nobody_knows_logs_nobody_in(made: tuple[World, Cluster]) -> None:
    world, cluster = made
    cluster.user = None
    response = await world.post("login", f"token={TOKEN}".encode(), FORM)
    assert response.status == 401
    assert "Set-Cookie" not in response.headers
    assert TOKEN not in await response.text()


@pytest.mark.parametrize("audiences", [[], ["https://kubernetes.default.svc"]])
async def test_a_token_for_somebody_else_logs_nobody_in(made: tuple[World, Cluster], audiences: list[str]) -> None:
    world, cluster = made
    cluster.audiences = audiences
    assert (await world.post("login", f"token={TOKEN}".encode(), FORM)).status == 401


@pytest.mark.parametrize("body", [b"", b"token=", b"other=x", b"\xff\xfe", b"token=" + b"x" * 70_000])
async def test_a_login_without_a_token_asks_nobody(made: tuple[World, Cluster], body: bytes) -> None:
    world, cluster = made
    assert (await world.post("login", body, FORM)).status == 401
    assert not cluster.server.asked


async def test_who_may_not_list_nodes_is_told_which_role_to_get(made: tuple[World, Cluster]) -> None:
    world, cluster = made
    cluster.may = set()
    response = await world.post("login", f"token={TOKEN}".encode(), FORM)
    assert response.status == 403
    assert "--clusterrole=gpushare-view --user=bob" in (await response.json())["try"]
    assert "Set-Cookie" not in response.headers


async def test_only_namespaces_that_may_be_listed_come_to_a_page(made: tuple[World, Cluster]) -> None:
    world, cluster = made
    session = await login(world)
    assert (await (await world.get("api/waiting", session)).json())["seen"] == ["ours"]
    cluster.may |= {("pods", "")}
    world.now += 60
    await world.get("api/waiting", session)
    assert world.asked[-1][1] is None


async def test_the_api_server_hears_all_it_knows_of_the_user_and_few_questions(made: tuple[World, Cluster]) -> None:
    world, cluster = made
    session = await login(world)
    for _ in range(20):
        await world.get("api/waiting", session)
    specs = [asked.body["spec"] for asked in cluster.server.asked if "token" not in asked.body["spec"]]
    assert len(specs) == 4  # nodes, pods, and pods of the two namespaces of that page
    for spec in specs:
        assert (spec["user"], spec["groups"], spec["uid"], spec["extra"]) == ("bob", ["g"], "u", {"k": ["v"]})


async def test_a_right_that_is_taken_away_ends_session_and_stream_within_a_minute(made: tuple[World, Cluster]) -> None:
    world, cluster = made
    session = await login(world)
    tab = await world.http.get(f"{world.base}/api/stream?from=e.0", headers=session)
    for _ in range(30):
        await world.pass_(1.0)
    cluster.may = set()
    before = world.now
    asked = cluster.server.count(RIGHTS)
    while cluster.server.count(RIGHTS) == asked:
        await world.pass_(1.0)
    assert world.now - before < 60
    assert await frames(tab, 1) == ["event: bye\ndata: your right to list nodes has ended"]
    assert (await world.get("api/me", session)).status == 401


async def test_while_the_api_server_is_away_the_last_answer_holds_for_ten_minutes(made: tuple[World, Cluster]) -> None:
    world, cluster = made
    session = await login(world)
    await world.get("api/waiting", session)
    cluster.server.on(RIGHTS, refuse(500, "InternalError"))
    world.now += rights.GRACE_SECONDS - 1
    assert (await (await world.get("api/waiting", session)).json())["seen"] == ["ours"]
    world.now += 2
    assert (await world.get("api/waiting", session)).status == 503
    cluster.server.on(RIGHTS, cluster._rights)
    assert (await world.get("api/waiting", session)).status == 200


async def test_a_session_does_not_outlive_its_token(made: tuple[World, Cluster]) -> None:
    world, _ = made
    claims = base64.urlsafe_b64encode(json.dumps({"exp": world.now + 600}).encode()).decode().rstrip("=")
    session = await login(world, f"h.{claims}.s")
    world.now += 599
    assert (await world.get("api/me", session)).status == 200
    world.now += 1
    assert (await world.get("api/me", session)).status == 401


async def test_no_session_outlives_twelve_hours(made: tuple[World, Cluster]) -> None:
    world, _ = made
    session = await login(world)
    for _ in range(11):
        world.now += 3600
        assert (await world.get("api/me", session)).status == 200
    world.now += 3600
    assert (await world.get("api/me", session)).status == 401


async def test_a_header_is_no_way_in_without_a_proxy(made: tuple[World, Cluster]) -> None:
    world, cluster = made
    assert (await world.get("api/me", {"Authorization": f"Bearer {TOKEN}"})).status == 401
    assert not cluster.server.asked


async def test_behind_a_proxy_each_request_has_the_token_of_its_user(proxied: tuple[World, Cluster]) -> None:
    world, cluster = proxied
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    assert (await world.get("api/me")).status == 401
    for _ in range(5):
        assert (await (await world.get("api/me", bearer)).json())["user"] == "bob"
    assert cluster.server.count(TOKENS) == 1
    world.now += 61
    cluster.user = None
    assert (await world.get("api/me", bearer)).status == 401


async def test_behind_a_proxy_there_is_no_login(proxied: tuple[World, Cluster]) -> None:
    world, cluster = proxied
    assert (await world.post("login", f"token={TOKEN}".encode(), FORM)).status == 404
    assert not cluster.server.asked


async def test_behind_a_proxy_a_right_that_is_taken_away_is_a_clear_answer(proxied: tuple[World, Cluster]) -> None:
    world, cluster = proxied
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    assert (await world.get("api/me", bearer)).status == 200
    cluster.may = set()
    world.now += 50
    for _ in range(2):
        response = await world.get("api/me", bearer)
        assert response.status == 403
        assert "gpushare-view" in (await response.json())["try"]


async def test_kubelet_is_answered_by_any_name_and_without_a_session(made: tuple[World, Cluster]) -> None:
    world, _ = made
    assert (await world.get("healthz", {"Host": "10.1.2.3:8443"})).status == 200
    assert (await world.get("readyz")).status == 200
    world.not_ready = "pods are being read"
    response = await world.get("readyz")
    assert (response.status, await response.text()) == (503, "pods are being read\n")
    assert (await world.get("healthz")).status == 200
