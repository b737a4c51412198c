"""Certificates: their dates, and what cannot be used."""

import ssl
from datetime import UTC, datetime

import pytest

from gpushare.kube.auth import tls
from tests.support.scripted_api import CERTS


def test_the_end_of_validity_is_read_in_both_forms_of_date() -> None:
    assert tls.not_after((CERTS / "expired.crt").read_bytes()) == datetime(2021, 1, 31, tzinfo=UTC)
    assert tls.not_after((CERTS / "client.crt").read_bytes()) == datetime(2120, 1, 1, tzinfo=UTC)


def test_of_a_chain_the_first_certificate_counts() -> None:
    chain = b"some words\n" + (CERTS / "expired.crt").read_bytes() + (CERTS / "ca.crt").read_bytes()
    assert tls.not_after(chain) == datetime(2021, 1, 31, tzinfo=UTC)


@pytest.mark.parametrize("keep", [0, 1, 2, 5, 20, 60, 150, 200, 250])
def test_a_certificate_cut_off_anywhere_has_no_date_and_is_no_crash(keep: int) -> None:
    der = ssl.PEM_cert_to_DER_cert((CERTS / "expired.crt").read_text())[:keep]
    assert tls.not_after(ssl.DER_cert_to_PEM_cert(der).encode()) in (None, datetime(2021, 1, 31, tzinfo=UTC))


@pytest.mark.parametrize("text", [b"", b"nonsense", b"-----END CERTIFICATE-----\n-----BEGIN CERTIFICATE-----", b"\xff"])
def test_what_is_no_certificate_has_no_date(text: bytes) -> None:
    assert tls.not_after(text) is None


def test_a_key_that_needs_a_password_is_refused_without_asking() -> None:
    key = b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIHs\n-----END ENCRYPTED PRIVATE KEY-----\n"
    pair = tls.Pair((CERTS / "client.crt").read_bytes(), key)
    with pytest.raises(ssl.SSLError):
        tls.prove(tls.trust(None, False), pair)


def test_a_key_of_another_certificate_is_refused() -> None:
    pair = tls.Pair((CERTS / "client.crt").read_bytes(), (CERTS / "server.key").read_bytes())
    with pytest.raises(ssl.SSLError, match=r"(?i)mismatch"):
        tls.prove(tls.trust(None, False), pair)


def test_without_memory_files_a_temporary_one_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("os.memfd_create", raising=False)
    pair = tls.Pair((CERTS / "client.crt").read_bytes(), (CERTS / "client.key").read_bytes())
    tls.prove(tls.trust((CERTS / "ca.crt").read_bytes(), False), pair)
