"""Reads a cluster with our own HTTP client, from a kubeconfig. Each request has a connection of its own."""

from typing import TYPE_CHECKING

from gpushare.view.connection import Connection

if TYPE_CHECKING:
    from gpushare.kube.auth.login import Access


class Direct(Connection):
    """Asks the API server itself, one request after the other: they share credentials, which know one event loop."""

    def namespace(self) -> str:
        """The namespace that is meant when none is named."""
        return self.access.namespace

    def _request(self, path: str, draft: bytes | None) -> bytes:
        import asyncio

        try:
            with self._one_at_a_time:
                return asyncio.run(self._send(self.access, path, draft))
        except TimeoutError:
            raise self._no_answer() from None

    async def _send(self, access: "Access", path: str, draft: bytes | None) -> bytes:
        import asyncio

        import msgspec

        from gpushare.kube import client
        from gpushare.kube.requests import Request

        message = self._waiting(path, draft)
        notice = asyncio.get_running_loop().call_later(self._patience, self._notify, message)
        try:
            async with asyncio.timeout(self._limit), client.connect(access, timeout=self._limit) as api:
                request = Request("GET", path)
                if draft is not None:
                    request = Request("POST", path, {"dryRun": "All"}, msgspec.Raw(draft))
                return bytes(await api.fetch(request, msgspec.Raw))
        finally:
            notice.cancel()
