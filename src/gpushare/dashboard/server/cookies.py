"""The cookie of a session: no script reads it, and no other site's page makes a browser send it."""

from typing import Final, NamedTuple

from aiohttp import web

LOGGED_OUT: Final = "you have logged out"


class Cookie(NamedTuple):
    """`secure`: sent over HTTPS only."""

    name: str
    secure: bool

    def read(self, request: web.BaseRequest) -> str:
        return request.cookies.get(self.name, "")

    def given(self, id_: str) -> web.Response:
        """To the dashboard, with this session."""
        response = _to_dashboard()
        response.set_cookie(self.name, id_, httponly=True, samesite="Strict", secure=self.secure, path="/")
        return response

    def taken(self) -> web.Response:
        """To the dashboard, without a session."""
        response = _to_dashboard()
        response.del_cookie(self.name, httponly=True, samesite="Strict", secure=self.secure, path="/")
        return response


def _to_dashboard() -> web.Response:
    return web.Response(status=303, headers={"Location": "./"})
