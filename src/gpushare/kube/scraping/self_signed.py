"""Makes the certificate of a port where no files are given: `python -m gpushare.kube.scraping.self_signed`.

A process of its own, because the library for it needs 10 MB, and needs them for a moment only. Nobody can check such a
certificate; it keeps tokens from being read on the way.
"""

import asyncio
import datetime
import ipaddress
import sys
from typing import Final

LIFE: Final = datetime.timedelta(days=30)
SECONDS: Final = 30.0  # until a process that makes one is given up


async def made(*hosts: str) -> tuple[bytes, bytes]:
    """A certificate for these names and addresses, and its key. OSError: why there is none."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, *hosts, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(SECONDS):
            text, failure = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
    certificate, _, key = text.partition(b"\n\n")
    if child.returncode or not key:
        last = failure.decode(errors="replace").strip().rpartition("\n")[2]
        raise OSError(last)
    return certificate, key


def make(hosts: list[str], now: datetime.datetime) -> tuple[bytes, bytes]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "gpushare")])
    known: list[x509.GeneralName] = []
    for host in hosts:
        try:
            known.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            known.append(x509.DNSName(host))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))  # clocks differ a little
        .not_valid_after(now + LIFE)
        .add_extension(x509.SubjectAlternativeName(known), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    return certificate.public_bytes(pem), key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)


if __name__ == "__main__":
    sys.stdout.buffer.write(b"\n".join(make(sys.argv[1:], datetime.datetime.now(datetime.UTC))))
