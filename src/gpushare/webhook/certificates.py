"""The webhook's own authority and its certificate: made, kept current, replaced in time.

Functions from what is held and the time to what should be held: whoever calls keeps it. An authority is replaced in two
steps. First the new one joins the bundle, which API servers are told; only after a while does it sign the certificate
that is served. So nobody ever meets a certificate that he does not trust yet. Old authorities stay in the bundle until
they expire.
"""

import datetime
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LIFE: Final = datetime.timedelta(days=730)
AUTHORITY_LEFT: Final = datetime.timedelta(days=365)  # when so much is left it is replaced
LEAF_LIFE: Final = datetime.timedelta(days=90)
LEAF_LEFT: Final = datetime.timedelta(days=30)
SETTLED: Final = datetime.timedelta(hours=1)  # how long a new authority is in the bundle before it signs
BACKDATED: Final = datetime.timedelta(hours=1)  # clocks of API servers differ a little

CERTIFICATE, KEY, BUNDLE, AUTHORITY_KEY = "tls.crt", "tls.key", "ca.crt", "ca.key"  # in the Secret


class Held(NamedTuple):
    """All as PEM. `bundle`: authorities, the newest first; `authority_key` is the newest one's."""

    certificate: bytes
    key: bytes
    bundle: bytes
    authority_key: bytes

    def as_data(self) -> dict[str, bytes]:
        return dict(zip((CERTIFICATE, KEY, BUNDLE, AUTHORITY_KEY), self, strict=True))


def read(data: Mapping[str, bytes], host: str) -> Held | None:
    """What a Secret holds; None if something is missing, is not what it should be, or does not belong together."""
    try:
        held = Held(data[CERTIFICATE], data[KEY], data[BUNDLE], data[AUTHORITY_KEY])
        leaf, authorities = x509.load_pem_x509_certificate(held.certificate), _authorities(held)
        fits = _key(held.key).public_key() == leaf.public_key()
        fits = fits and _key(held.authority_key).public_key() == authorities[0].public_key()
        if fits and host in _hosts(leaf) and any(_signed(leaf, authority) for authority in authorities):
            return held
    except (KeyError, ValueError, TypeError, IndexError, UnsupportedAlgorithm, x509.ExtensionNotFound):
        pass  # somebody else wrote it, or half of it
    return None


def current(held: Held | None, now: datetime.datetime, host: str) -> Held:
    """What should be held at this time. The same object if nothing has to change."""
    if held is None or not _is_valid(_authorities(held)[0], now):
        return _made(now, host)
    newest, *older = _authorities(held)
    if newest.not_valid_after_utc - now < AUTHORITY_LEFT:
        key = _new_key()
        newest, older = _authority(key, now), [newest, *older]
        held = held._replace(bundle=_bundle([newest, *older], now), authority_key=_pem(key))
    leaf = x509.load_pem_x509_certificate(held.certificate)
    due = leaf.not_valid_after_utc - now < LEAF_LEFT or leaf.not_valid_before_utc > now
    settled = now - (newest.not_valid_before_utc + BACKDATED) >= SETTLED
    replaces = not _signed(leaf, newest) and (settled or not _is_valid(leaf, now))
    if replaces or (due and _signed(leaf, newest)):
        return _with_leaf(held, newest, now, host)
    return held


def expires(held: Held) -> datetime.datetime:
    return x509.load_pem_x509_certificate(held.certificate).not_valid_after_utc


def _made(now: datetime.datetime, host: str) -> Held:
    key = _new_key()
    authority = _authority(key, now)
    return _with_leaf(Held(b"", b"", _bundle([authority], now), _pem(key)), authority, now, host)


def _with_leaf(held: Held, authority: x509.Certificate, now: datetime.datetime, host: str) -> Held:
    key, signer = _new_key(), _key(held.authority_key)
    usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    leaf = (
        _builder(host, authority.subject, key, now, LEAF_LIFE)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usages, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA256())
    )
    return held._replace(certificate=leaf.public_bytes(serialization.Encoding.PEM), key=_pem(key))


def _authority(key: ec.EllipticCurvePrivateKey, now: datetime.datetime) -> x509.Certificate:
    # Each has a name of its own: of two with one name a verifier may try only the first.
    name = f"gpushare-webhook {now:%Y-%m-%dT%H:%M:%SZ} {x509.random_serial_number() % 10**9:09d}"
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=False, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    return (
        _builder(name, _name(name), key, now, AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _builder(
    name: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime.datetime, life: datetime.timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + life)
    )


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError("not a key of ours")
    return key


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)


def _bundle(authorities: Sequence[x509.Certificate], now: datetime.datetime) -> bytes:
    kept = [one for one in authorities if one.not_valid_after_utc > now]
    return b"".join(one.public_bytes(serialization.Encoding.PEM) for one in kept)


def _authorities(held: Held) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(held.bundle)


def _hosts(leaf: x509.Certificate) -> list[str]:
    return leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(x509.DNSName)


def _signed(leaf: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        leaf.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _is_valid(certificate: x509.Certificate, now: datetime.datetime) -> bool:
    return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc
