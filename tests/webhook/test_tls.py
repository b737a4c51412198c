"""The certificate that is shown to API servers: what cannot be used never takes the place of what can."""

import asyncio
import datetime
import ssl
from pathlib import Path

import pytest

from gpushare.core.admission import guard
from gpushare.obs.errors import UserError
from gpushare.obs.tls import Shown
from gpushare.webhook import certificates, rules
from gpushare.webhook.certificates import Held
from gpushare.webhook.tls import Files

HOST = rules.host(guard.NAMESPACE)


def new() -> Held:
    return certificates.current(None, datetime.datetime.now(datetime.UTC), HOST)


async def is_shown(shown: Shown, held: Held) -> bool:
    """Whether a client that trusts only this authority can connect."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=shown.context)
    trusting = ssl.create_default_context(cadata=held.bundle.decode())
    async with server:
        port = server.sockets[0].getsockname()[1]
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting, server_hostname=HOST)
        except OSError:
            return False
        writer.close()
        return True


@pytest.mark.parametrize("written", ["the certificate only", "half of each", "nothing", "garbage"])
async def test_files_that_are_half_written_leave_the_certificate_before_them_in_use(
    written: str, tmp_path: Path
) -> None:
    first, second, shown = new(), new(), Shown()
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    files = Files(shown, str(certificate), str(key), None)

    async def show(pem: bytes, key_pem: bytes) -> None:
        certificate.write_bytes(pem)
        key.write_bytes(key_pem)
        await files.refresh()

    await show(first.certificate, first.key)
    with pytest.raises(UserError, match=r"the TLS files cannot be used: .*tls\.crt, .*tls\.key"):
        await show(*{
            "the certificate only": (second.certificate, first.key),
            "half of each": (second.certificate[:300], second.key[:100]),
            "nothing": (b"", b""),
            "garbage": (b"\xff" * 1000, b"\x00" * 1000),
        }[written])  # fmt: skip
    assert await is_shown(shown, first)
    await show(second.certificate, second.key)
    assert await is_shown(shown, second)
    assert not await is_shown(shown, first)
