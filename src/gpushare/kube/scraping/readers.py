"""Who may read the metrics page: the API server is asked whose a token is, and whether that one may read /metrics."""

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from gpushare.kube.client import Api
from gpushare.kube.reviewing import bearers, reviews
from gpushare.kube.reviewing.bearers import Bearers, Refused
from gpushare.kube.reviewing.reviews import User

NO_TOKEN: Final = "these metrics need a bearer token: Authorization: Bearer TOKEN"
NOT_ALLOWED: Final = (
    "{user} may not read /metrics: bind the ClusterRole gpushare-metrics to it, such as: kubectl create "
    "clusterrolebinding NAME --clusterrole=gpushare-metrics {subject}"
)
NOT_ASKED: Final = "the API server could not be asked whether this token may read /metrics: {why}"
READ: Final = {"nonResourceAttributes": {"path": "/metrics", "verb": "get"}}


class Verdict(NamedTuple):
    """`status`: 200, or the one to answer with."""

    status: int
    why: str = ""


class Readers:
    def __init__(self, api: Api, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._bearers = Bearers(self._ask, no_token=NO_TOKEN, not_asked=NOT_ASKED, clock=clock)

    async def verdict(self, authorization: str, address: str = "") -> Verdict:
        """`authorization`: the header of that name. `address`: who asks."""
        found = await self._bearers.find(authorization, address)
        return Verdict(*found) if isinstance(found, Refused) else Verdict(200)

    async def _ask(self, token: str) -> User | Refused:
        user = await reviews.owner(self._api, token)
        if user is None:
            return Refused(401, bearers.BAD_TOKEN)
        if await reviews.may(self._api, user, READ):
            return user
        return Refused(403, NOT_ALLOWED.format(user=user.username, subject=reviews.subject(user)))
