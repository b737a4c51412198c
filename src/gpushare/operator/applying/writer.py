"""Every write of the operator goes through here: only while it leads, counted, and with failures that people can read.

The fence matters when this process was stopped for longer than its Lease is valid: another one works by then.
"""

from collections.abc import Callable
from typing import TypeVar

from gpushare.kube import answers, client, failures
from gpushare.kube.errors import ApiError, KubeError, Unreachable
from gpushare.kube.requests import Request

T = TypeVar("T")

LONGEST = 300  # characters of the API server's own words
NO_LEADER = "this replica does not lead any more"


class Writer:
    def __init__(self, api: client.Api, leads: Callable[[], bool]) -> None:
        self.writes = 0
        self._api, self._leads = api, leads

    async def send(self, request: Request) -> bytes:
        if not self._leads():
            raise Unreachable(NO_LEADER, sent=False)
        self.writes += 1
        return await self._api.send(request)

    async def fetch(self, request: Request, kind: type[T]) -> T:
        return answers.decode(await self.send(request), kind, request.path)

    async def delete(self, request: Request) -> None:
        """What is gone already, or is another object by now, is fine."""
        try:
            await self.send(request)
        except ApiError as error:
            if error.status not in (404, 409):
                raise


def sentence(error: KubeError) -> str:
    """For the status of a policy: which right is missing, or what the API server says."""
    if isinstance(error, ApiError) and error.status == 403 and (missing := failures.FORBIDDEN.search(error.message)):
        group = f" of {missing['group']}" if missing["group"] else ""
        where = f" in namespace {missing['namespace']}" if missing["namespace"] else ""
        return f'not allowed: {missing["verb"]} {missing["resource"]}{group}{where}, as "{missing["user"]}" (403)'
    text = " ".join(str(error).split())
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
