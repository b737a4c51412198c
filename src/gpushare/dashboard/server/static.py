"""The files of the browser's part, read once at the start. What is asked for is looked up by its whole name, so no
name can lead to another file."""

import gzip
import hashlib
from pathlib import Path
from typing import Final, NamedTuple

from aiohttp import web

from gpushare import dashboard

FOLDER: Final = Path(dashboard.__file__).parent / "static"
INDEX: Final = "index.html"
TYPES: Final = {  # not as this machine has them: a browser runs no script of another type
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
}
SMALL: Final = 500  # bytes; below that nothing is gained by packing


class File(NamedTuple):
    body: bytes
    packed: bytes  # empty: it is not worth it
    etag: str
    headers: dict[str, str]


class Static:
    def __init__(self, folder: Path = FOLDER) -> None:
        self._files = {
            path.relative_to(folder).as_posix(): _loaded(path) for path in sorted(folder.rglob("*")) if path.is_file()
        }

    def names(self) -> list[str]:
        return list(self._files)

    def answer(self, name: str, request: web.BaseRequest) -> web.Response | None:
        """None: there is no such file. It is kept by the browser, which asks each time whether it has changed."""
        file = self._files.get(name)
        if file is None:
            return None
        if file.etag in [tag.strip().removeprefix("W/") for tag in request.headers.get("If-None-Match", "").split(",")]:
            return web.Response(status=304, headers={"ETag": file.etag, "Cache-Control": "no-cache"})
        if file.packed and accepts_gzip(request):
            return web.Response(body=file.packed, headers={**file.headers, "Content-Encoding": "gzip"})
        return web.Response(body=file.body, headers=file.headers)


def accepts_gzip(request: web.BaseRequest) -> bool:
    return "gzip" in request.headers.get("Accept-Encoding", "")


def _loaded(path: Path) -> File:
    body = path.read_bytes()
    packed = gzip.compress(body, mtime=0) if len(body) >= SMALL else b""
    etag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
    kind = TYPES.get(path.suffix) or "text/plain; charset=utf-8"
    headers = {"Content-Type": kind, "ETag": etag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    return File(body, packed if len(packed) < len(body) else b"", etag, headers)
