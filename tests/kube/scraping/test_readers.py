"""Who may read the metrics page, as the API server says."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from gpushare.kube import client
from gpushare.kube.reviewing import bearers
from gpushare.kube.scraping import readers
from gpushare.kube.scraping.readers import Readers, Verdict
from tests.support import scripted_api
from tests.support.scripted_api import Server, answer

TOKENS = "POST /apis/authentication.k8s.io/v1/tokenreviews"
RIGHTS = "POST /apis/authorization.k8s.io/v1/subjectaccessreviews"
USER = {"username": "system:serviceaccount:monitoring:prometheus", "groups": ["g"], "uid": "u", "extra": {"k": ["v"]}}
ALLOWED = {"status": {"allowed": True}}


class World:
    def __init__(self, server: Server, api: client.Api) -> None:
        self.server, self.now = server, 0.0
        self.readers = Readers(api, lambda: self.now)

    def known(self, user: dict[str, Any] | None = USER, right: dict[str, Any] = ALLOWED) -> None:
        """What the API server says from now on; `user` None: it does not know the token."""
        self.server.on(TOKENS, answer({"status": {"authenticated": user is not None, "user": user}}))
        self.server.on(RIGHTS, answer(right))

    async def asks(self, token: str = "secret-1", address: str = "10.0.0.1") -> Verdict:
        return await self.readers.verdict(f"Bearer {token}", address)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with scripted_api.serve() as server, client.connect(server.access()) as api:
        world = World(server, api)
        world.known()
        yield world


async def test_a_token_whose_owner_may_read_metrics_is_good_for_a_minute(world: World) -> None:
    assert await world.asks() == (200, "")
    world.now = 59.0
    assert await world.asks() == (200, "")
    assert (world.server.count(TOKENS), world.server.count(RIGHTS)) == (1, 1)
    world.now = 60.0
    world.known(None)
    assert (await world.asks()).status == 401


async def test_the_api_server_is_asked_about_all_that_is_known_of_the_owner(world: World) -> None:
    await world.asks()
    tokens, rights = world.server.asked
    assert tokens.body["spec"] == {"token": "secret-1"}
    assert rights.body["spec"] == {
        "user": USER["username"], "groups": ["g"], "uid": "u", "extra": {"k": ["v"]},
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    }  # fmt: skip


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Basic YTpi", "Bearer \udcff", "Bearer " + "x" * (bearers.LONGEST + 1)]
)
async def test_without_a_token_nobody_is_asked(world: World, header: str) -> None:
    assert await world.readers.verdict(header) == (401, readers.NO_TOKEN)
    assert not world.server.asked


async def test_a_token_that_nobody_knows_is_asked_about_again_after_five_seconds(world: World) -> None:
    world.known(None)
    assert await world.asks() == (401, bearers.BAD_TOKEN)
    world.known()
    world.now = 4.9
    assert (await world.asks()).status == 401
    world.now = 5.0
    assert (await world.asks()).status == 200


async def test_who_may_not_is_told_the_command_that_helps(world: World) -> None:
    world.known(right={"status": {"allowed": False}})
    found = await world.asks()
    assert found.status == 403
    assert "--clusterrole=gpushare-metrics --serviceaccount=monitoring:prometheus" in found.why
    world.known({"username": "ada"}, {"status": {"allowed": False}})
    assert "--clusterrole=gpushare-metrics --user=ada" in (await world.asks("other")).why
    world.known({"username": "ada; ls"}, {"status": {"allowed": False}})
    assert (await world.asks("third")).why.endswith("--clusterrole=gpushare-metrics '--user=ada; ls'")


async def test_an_api_server_that_cannot_be_asked_is_said_and_not_remembered(world: World) -> None:
    world.server.on(TOKENS, answer({"kind": "Status", "code": 403, "message": "you may not create tokenreviews"}, 403))
    found = await world.asks()
    assert found.status == 503
    assert "could not be asked" in found.why
    assert "secret-1" not in found.why
    world.known()
    assert (await world.asks()).status == 200


async def test_only_so_many_answers_are_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bearers, "MOST_KEPT", 2)
    for token in ("a", "b", "c", "c", "a"):
        await world.asks(token)
    assert world.server.count(TOKENS) == 4  # a was dropped for c


async def test_tokens_are_not_kept(world: World) -> None:
    await world.asks("very-secret")
    assert "very-secret" not in repr(vars(world.readers._bearers))


async def test_invented_tokens_become_no_flood_of_questions_and_keep_nobody_out(world: World) -> None:
    assert (await world.asks("good", "10.0.0.2")).status == 200
    world.known(None)
    told = [(await world.asks(f"invented-{number}")).status for number in range(600)]
    assert (told.count(401), told.count(503)) == (bearers.AT_FIRST, 600 - bearers.AT_FIRST)
    assert world.server.count(TOKENS) == bearers.AT_FIRST + 1
    world.now = 59.0
    assert (await world.asks("good", "10.0.0.2")).status == 200
    for number in range(600):
        await world.asks(f"more-{number}")
    world.known()
    world.now = 60.0
    assert (await world.asks("good")).status == 200, "also from an address that has no turn"
    assert (await world.asks("new", "10.0.0.2")).status == 200
    world.now = 61.0
    assert (await world.asks("invented-again")).status == 200, "one a second"
