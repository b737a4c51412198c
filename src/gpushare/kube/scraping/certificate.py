"""The certificate of a port that others than API servers and schedulers ask: from files, else made here.

It is looked after while the component runs: files that change are loaded, and one of our own is made anew in time.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from gpushare.kube.scraping import self_signed
from gpushare.obs import log
from gpushare.obs.errors import UserError
from gpushare.obs.tls import Shown

FILES_SECONDS: Final = 60.0  # between two looks at certificate files
RENEW_SECONDS: Final = 7 * 86_400.0  # after that a certificate of our own is replaced
EVERY_ADDRESS: Final = ("", "::", "0.0.0.0")

Made = Callable[..., Awaitable[tuple[bytes, bytes]]]

logger = log.get(__name__)


class Files(NamedTuple):
    """PEM; empty: none. `flags`: the options that named them."""

    cert: str
    key: str
    flags: str


class Certificate:
    """`hosts`: the names and addresses it is made for. `otherwise`: what to do if none can be made."""

    def __init__(self, files: Files, hosts: Sequence[str], otherwise: str, made: Made = self_signed.made) -> None:
        self._shown = Shown()
        self._files, self._otherwise, self._made = files, otherwise, made
        self._hosts = [host for host in hosts if host not in EVERY_ADDRESS]
        if files.cert:
            self._load_files()

    @property
    def context(self) -> ssl.SSLContext:
        return self._shown.context

    async def refresh(self) -> None:
        """Raises UserError; the one before stays in use."""
        if self._files.cert:
            self._load_files()
            return
        try:
            self._shown.load(*await self._made(*self._hosts))
        except (OSError, TimeoutError) as error:
            why = str(error) or "it took too long"
            raise UserError("no certificate could be made", why, self._otherwise) from error

    async def keep(self, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep) -> None:
        """For ever."""
        while True:
            await sleep(FILES_SECONDS if self._files.cert else RENEW_SECONDS)
            try:
                await self.refresh()
            except UserError as error:
                logger.warn(error.what, **error.fields())

    def _load_files(self) -> None:
        files = self._files.cert, self._files.key
        try:
            self._shown.load(*(Path(file).read_bytes() for file in files))
        except (OSError, ValueError) as error:  # ssl's own errors are OSErrors
            way = f"check {self._files.flags}: PEM, without a password, and a matching pair"
            raise UserError(f"the TLS files cannot be used: {', '.join(files)}", str(error), way) from error
