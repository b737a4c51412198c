"""The embedded API server and a client of it, for every test below this folder."""

from tests.support.api_fixtures import api, server

__all__ = ["api", "server"]
