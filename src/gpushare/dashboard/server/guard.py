"""What is refused before anybody looks at who asks, and the headers of every answer.

A page of another site may make a browser send requests here, and may even give its own name our address (DNS
rebinding). So the name that is asked for has to be ours, and what a page sends has to come from our page. Answers tell
the browser to run, show and load nothing but our own files, and never inside somebody else's page.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from aiohttp import web

from gpushare.dashboard.server.problems import Problem

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Server": "gpushare",
}
POSTS: Final = ("/login", "/logout", "/api/whatif")
PROBES: Final = ("/healthz", "/readyz")
API: Final = "/api/"
LARGEST: Final = 256 * 1024  # bytes of a body
SAME: Final = "same-origin"
MARK: Final = "X-Gpushare"  # a header that no form can send

LOOPBACK: Final = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::[0-9]{1,5})?")
WRONG_HOST: Final = "this dashboard is not called {host}"
WRONG_HOST_WHY: Final = "it answers only to names it knows: {names}"
WRONG_ORIGIN: Final = "this request comes from a page that is not the dashboard's"
WRONG_METHOD: Final = "{method} is not answered here"
LONGEST_SHOWN: Final = 100  # characters of a name that somebody else has written


class Hosts(NamedTuple):
    """The names it may be asked by. `exact`: with their ports. `loopback`: this machine's own names with any port, too,
    because `kubectl port-forward` chooses one. `schemes`: of its pages. `way`: how to be asked by another name."""

    exact: frozenset[str]
    loopback: bool
    schemes: frozenset[str]
    way: str

    def knows(self, host: str) -> bool:
        return host.lower() in self.exact or (self.loopback and LOOPBACK.fullmatch(host.lower()) is not None)

    def is_own(self, origin: str, host: str) -> bool:
        """Whether that page is ours. Of this machine's names only the one that was asked for: each port of it may be
        somebody else's program."""
        scheme, _, name = origin.lower().partition("://")
        return scheme in self.schemes and (name in self.exact or name == host.lower())


class Request(web.BaseRequest):
    """Its answer has our headers, whoever made it: also what aiohttp says of requests that it cannot read."""

    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        response.headers.update(HEADERS)
        response.headers.setdefault("Cache-Control", "no-store")  # static files say something else


def local(port: int, host: str = "127.0.0.1") -> Hosts:
    """On the loopback of this machine. `host`: where it listens, as it stands in a URL."""
    names = frozenset(f"{name}:{port}" for name in (host.lower(), "127.0.0.1", "localhost", "[::1]"))
    way = f"http://{host}:{port}/; from another machine: ssh -L {port}:127.0.0.1:{port} HOST, with the same port"
    return Hosts(names, False, frozenset({"http"}), way)


def in_cluster(port: int, names: Iterable[str], *, behind_proxy: bool) -> Hosts:
    """`names`: without a port they are also good with that of this process, and with the one of HTTPS."""
    exact = set()
    for name in map(str.lower, names):
        exact |= {name} if _has_port(name) else {name, f"{name}:{port}", f"{name}:443"}
    schemes = frozenset({"https", "http"} if behind_proxy else {"https"})
    return Hosts(frozenset(exact), True, schemes, "gpushare dashboard --host NAME")


def check(method: str, path: str, headers: Mapping[str, str], hosts: Hosts) -> None:
    """Raises Problem if this request is none of ours."""
    if path in PROBES and method == "GET":
        return
    host = headers.get("Host", "")
    if not hosts.knows(host):
        names = ", ".join(sorted(hosts.exact))
        shown = host[:LONGEST_SHOWN].encode("ascii", "replace").decode() or '""'  # bytes that are no text have no JSON
        raise Problem(421, WRONG_HOST.format(host=shown), WRONG_HOST_WHY.format(names=names), hosts.way)
    posted = method == "POST" and path in POSTS
    if not posted and method != "GET":
        allowed = "GET, POST" if path in POSTS else "GET"
        raise Problem(405, WRONG_METHOD.format(method=method[:20]), f"{allowed} only", headers={"Allow": allowed})
    if _is_foreign(path, posted, headers, hosts, host):
        raise Problem(403, WRONG_ORIGIN, "another site must not ask in your name", "open the dashboard itself")


def _is_foreign(path: str, posted: bool, headers: Mapping[str, str], hosts: Hosts, host: str) -> bool:
    """Whether a page of somebody else may have sent it. No page can write these two headers itself."""
    origin, site = headers.get("Origin"), headers.get("Sec-Fetch-Site", "")
    if posted and origin == "null":
        return site != SAME  # because we send no referrer, a browser does not name the page of a form, not even ours
    if origin is None:
        return posted or (path.startswith(API) and site not in ("", SAME, "none"))
    return not hosts.is_own(origin, host) or (site not in ("", SAME) and (posted or path.startswith(API)))


def _has_port(name: str) -> bool:
    return re.search(r":[0-9]+$", name) is not None and (name.count(":") == 1 or name.startswith("["))
