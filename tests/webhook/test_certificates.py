"""The life of the webhook's certificates, with a clock that the test sets."""

import datetime
import ssl
from pathlib import Path

import pytest
from cryptography import x509

from gpushare.core.admission import guard
from gpushare.webhook import certificates, rules
from gpushare.webhook.certificates import Held

START = datetime.datetime(2026, 11, 17, 12, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
HOST = rules.host(guard.NAMESPACE)


def leaf(held: Held) -> x509.Certificate:
    return x509.load_pem_x509_certificate(held.certificate)


def authorities(held: Held) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(held.bundle)


def trusted(held: Held, by: Held) -> bool:
    """Whether somebody with that bundle accepts this certificate, the dates aside."""
    return any(certificates._signed(leaf(held), one) for one in authorities(by))


@pytest.fixture(scope="module")
def made() -> Held:
    return certificates.current(None, START, HOST)


def test_what_is_made_belongs_together_and_openssl_takes_it(made: Held, tmp_path: Path) -> None:
    assert certificates.read(made.as_data(), HOST) == made
    assert leaf(made).not_valid_before_utc < START < leaf(made).not_valid_after_utc == START + certificates.LEAF_LIFE
    file = tmp_path / "pair.pem"
    file.write_bytes(made.certificate + made.key)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(file)


def test_nothing_changes_while_nothing_is_due(made: Held) -> None:
    for days in (0, 1, 59):
        assert certificates.current(made, START + days * DAY, HOST) is made


def test_the_certificate_is_renewed_a_month_before_it_ends_and_the_authority_stays(made: Held) -> None:
    later = START + certificates.LEAF_LIFE - certificates.LEAF_LEFT + DAY
    renewed = certificates.current(made, later, HOST)
    assert renewed.bundle == made.bundle
    assert leaf(renewed).not_valid_after_utc == later + certificates.LEAF_LIFE
    assert trusted(renewed, made)


def test_a_new_authority_is_told_long_before_it_signs_and_the_old_one_stays_told() -> None:
    held, now, told = certificates.current(None, START, HOST), START, []
    first = authorities(held)[0]
    while now < START + 3 * 365 * DAY:
        before = held
        held = certificates.current(held, now, HOST)
        assert certificates.read(held.as_data(), HOST) == held
        assert leaf(held).not_valid_before_utc <= now < leaf(held).not_valid_after_utc
        if held.certificate != before.certificate:
            assert trusted(held, before), "served before API servers could know its authority"
        if held.bundle != before.bundle:
            told.append(now)
            assert held.certificate == before.certificate
            assert trusted(before, held), "the certificate in use is no longer trusted"
        now += DAY
    assert len(told) == 2  # after one year, and after two
    assert first not in authorities(held)  # it has expired, and is forgotten


def test_after_a_long_sleep_everything_is_made_anew_at_once(made: Held) -> None:
    late = START + 5 * 365 * DAY
    fresh = certificates.current(made, late, HOST)
    assert leaf(fresh).not_valid_before_utc < late < leaf(fresh).not_valid_after_utc
    assert trusted(fresh, fresh)
    assert not trusted(fresh, made)


def test_an_expired_certificate_of_a_living_authority_is_replaced_at_once(made: Held) -> None:
    late = START + certificates.LEAF_LIFE + DAY
    fresh = certificates.current(made, late, HOST)
    assert fresh.bundle == made.bundle
    assert leaf(fresh).not_valid_after_utc > late


def test_what_a_clock_in_the_future_made_is_replaced(made: Held) -> None:
    early = START - 365 * DAY
    fresh = certificates.current(made, early, HOST)
    assert leaf(fresh).not_valid_before_utc < early < leaf(fresh).not_valid_after_utc


def test_a_killed_rotation_goes_on_where_it_was(made: Held) -> None:
    """What is written is written at once: between the two steps there is nothing but time."""
    due = START + certificates.AUTHORITY_LIFE - certificates.AUTHORITY_LEFT + DAY
    held = certificates.current(made, due - 30 * DAY, HOST)
    told = certificates.current(held, due, HOST)
    assert len(authorities(told)) == 2
    assert told.certificate == held.certificate
    again = certificates.read(told.as_data(), HOST)
    assert certificates.current(again, due, HOST) is again
    signed = certificates.current(again, due + certificates.SETTLED, HOST)
    assert signed.certificate != told.certificate
    assert signed.bundle == told.bundle


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {certificates.CERTIFICATE: b""},
        {certificates.CERTIFICATE: b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"},
        {certificates.KEY: b"garbage"},
        {certificates.AUTHORITY_KEY: b"\xff\xfe"},
        {certificates.BUNDLE: b"\n"},
    ],
)
def test_garbage_is_nothing(made: Held, broken: dict[str, bytes]) -> None:
    assert certificates.read(made.as_data() | broken if broken else {}, HOST) is None


def test_parts_of_two_are_nothing(made: Held) -> None:
    other = certificates.current(None, START, HOST)
    for name, value in other.as_data().items():
        assert certificates.read(made.as_data() | {name: value}, HOST) is None


def test_a_certificate_for_somebody_else_is_nothing(made: Held) -> None:
    assert certificates.read(made.as_data(), "other.kube-system.svc") is None
