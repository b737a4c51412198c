"""Fixtures: `server` is the embedded API server, `api` a client of it, or of a real one where the test allows that."""

from collections.abc import AsyncIterator

import pytest

from gpushare.devcluster.apiserver.server import ApiServer
from tests.support import api_client


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer(bookmark_seconds=0.05) as server:
        yield server


@pytest.fixture
async def api(request: pytest.FixtureRequest) -> AsyncIterator[api_client.Api]:
    """Against the real server only in modules that use nothing but HTTP."""
    real = api_client.real_server()
    if real and "test_api_behaviour" in request.node.nodeid:
        url, token, ca = real
        async with api_client.connect(url, token, ca) as api:
            yield api
    else:
        server = request.getfixturevalue("server") if "server" in request.fixturenames else None
        if server is not None:
            async with api_client.connect(server.url) as api:
                yield api
        else:
            async with ApiServer() as embedded, api_client.connect(embedded.url) as api:
                yield api
