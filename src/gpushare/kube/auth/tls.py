"""TLS towards the API server from certificates held in memory, and until when a certificate is valid.

Keys are never written to a disk: OpenSSL needs a file, so on Linux it gets an anonymous one in memory.
"""

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import NamedTuple


class Pair(NamedTuple):
    """A client certificate (with its chain) and its key, as PEM."""

    certificate: bytes
    key: bytes


def trust(ca: bytes | None, insecure: bool) -> ssl.SSLContext:
    """Trusts `ca`, or what the system trusts if there is none. Raises ssl.SSLError if it is no certificate."""
    made = ssl.create_default_context(cadata=ca.decode("ascii", "replace") if ca else None)
    # Python 3.13 refuses certificate authorities without key identifiers, which many clusters have.
    made.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if insecure:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    return made


def prove(context: ssl.SSLContext, pair: Pair) -> None:
    """Shows this client certificate to servers that ask. Raises ssl.SSLError if certificate or key are not usable."""
    with _file(pair.certificate + b"\n" + pair.key) as path:
        # Without a password of our own OpenSSL would ask for an encrypted key's on the terminal.
        context.load_cert_chain(path, password="")


def not_after(pem: bytes) -> datetime | None:
    """The end of validity of the first certificate in `pem`, or None if it cannot be read."""
    begin, end = ssl.PEM_HEADER, ssl.PEM_FOOTER
    text = pem.decode("ascii", "replace")
    start, stop = text.find(begin), text.find(end)
    if start < 0 or stop < start:
        return None
    try:
        return _not_after(ssl.PEM_cert_to_DER_cert(text[start : stop + len(end)]))
    except (ValueError, IndexError):
        return None


def _not_after(der: bytes) -> datetime:
    """X.509: certificate { tbs { [version] serial algorithm issuer validity { notBefore notAfter } ... } ... }."""
    _, certificate, _ = _element(der)
    _, rest, _ = _element(certificate)
    tag, _, after = _element(rest)
    if tag == 0xA0:  # the version is optional
        rest = after
    for _ in range(3):
        _, _, rest = _element(rest)
    _, validity, _ = _element(rest)
    _, _, rest = _element(validity)
    tag, value, _ = _element(rest)
    text = value.decode("ascii")
    if tag == 0x17:  # UTCTime has two digits for the year, and 50 is 1950
        text = ("19" if text >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _element(der: bytes) -> tuple[int, bytes, bytes]:
    """Tag, content and what follows of the first element."""
    tag, length, start = der[0], der[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(der[2:start], "big")
    return tag, der[start : start + length], der[start + length :]


@contextmanager
def _file(content: bytes) -> Iterator[str]:
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("gpushare", os.MFD_CLOEXEC)
        try:
            os.write(handle, content)
            yield f"/proc/self/fd/{handle}"
        finally:
            os.close(handle)
    else:
        with tempfile.NamedTemporaryFile() as file:  # readable by its owner only
            file.write(content)
            file.flush()
            yield file.name
