"""The words that say where Prometheus asks a component, and what it is answered."""

import pytest

from gpushare import cli
from gpushare.kube.scraping.server import Listening
from gpushare.node.exporter.exporter import Config
from tests.support import manifests

TLS = ["--metrics-tls-cert", "c.pem", "--metrics-tls-key", "k.pem"]


def config(monkeypatch: pytest.MonkeyPatch, *words: str) -> Config:
    return manifests.node_config(["node", *words], monkeypatch).observing.exporter


@pytest.mark.parametrize(
    ("words", "listening"),
    [
        ([], Listening(manifests.POD_IP, 9400)),
        (["--metrics-listen", "off"], None),
        (["--metrics-listen", "127.0.0.1:9000"], Listening("127.0.0.1", 9000)),
        (["--metrics-listen", "[fd00::1]:9400"], Listening("fd00::1", 9400)),
        (["--metrics-listen", ":9400"], Listening("", 9400)),
        (["--metrics-listen", "[192.0.2.7]:9400"], Listening("192.0.2.7", 9400)),  # as [$(POD_IP)]:9400
        (["--metrics-listen", "[]:9400"], Listening("", 9400)),  # POD_IP is not known yet
        (["--metrics-listen", ":9400", *TLS], Listening("", 9400, "c.pem", "k.pem")),
        (["--metrics-client-ca", "ca.pem", *TLS], Listening(manifests.POD_IP, 9400, "c.pem", "k.pem", "ca.pem")),
    ],
)
def test_where_it_listens(monkeypatch: pytest.MonkeyPatch, words: list[str], listening: Listening | None) -> None:
    assert config(monkeypatch, *words).listen == listening


def test_without_the_address_of_a_pod_it_is_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "POD_IP", "")
    assert config(monkeypatch).listen == Listening("127.0.0.1", 9400)


def test_nvidias_names(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--dcgm-names=on", "--hostname-label=hostname", "--counters=c.csv", "--metrics-listen=off")
    assert config(monkeypatch, *words) == Config(None, "on", "hostname", "c.csv")


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--metrics-listen", "9400"], '"9400" is not an address to listen on'),
        (["--metrics-listen", "fd00::1:9400"], '"fd00::1:9400" is not an address to listen on'),
        (["--metrics-listen", "127.0.0.1:0"], '"127.0.0.1:0" is not an address to listen on'),
        (["--metrics-listen", "127.0.0.1:70000"], '"127.0.0.1:70000" is not an address to listen on'),
        (["--dcgm-names", "yes"], 'unknown choice "yes"'),
        (["--hostname-label", "HOSTNAME"], 'unknown label "HOSTNAME"'),
        (["--metrics-tls-cert", "c.pem"], "a TLS file of the metrics page is missing"),
        (["--metrics-client-ca", "ca.pem"], "a TLS file of the metrics page is missing"),
        (["--metrics-listen", "off", *TLS], "the metrics page has no use for TLS files"),
        (["--metrics-listen", "127.0.0.1:9400", *TLS], "the metrics page has no use for TLS files"),
    ],
)
def test_what_cannot_be_meant_is_told_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], what: str
) -> None:
    monkeypatch.setenv("NODE_NAME", "gpu-a")
    assert cli.main(["node", *words]) == 2
    assert capsys.readouterr().err.startswith(f"error: {what}\n  why: ")


@pytest.mark.parametrize(
    ("words", "listening"),
    [
        ([], None),
        (["--metrics-listen", "off"], None),
        (["--metrics-listen", "[fd00::1]:12348"], Listening("fd00::1", 12348)),
        (["--metrics-listen", ":12348", *TLS], Listening("", 12348, "c.pem", "k.pem")),
    ],
)
def test_the_extender_listens_for_prometheus_only_if_told(
    monkeypatch: pytest.MonkeyPatch, words: list[str], listening: Listening | None
) -> None:
    monkeypatch.setenv("POD_IP", manifests.POD_IP)
    assert manifests.extender_config(["extender", *words], monkeypatch).metrics == listening


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--metrics-listen", "12348"], '"12348" is not an address to listen on'),
        (["--metrics-tls-key", "k.pem"], "a TLS file of the metrics page is missing"),
        (TLS, "the metrics page has no use for TLS files"),
    ],
)
def test_what_the_extender_cannot_be_meant_to_do_is_told_in_a_sentence(
    capsys: pytest.CaptureFixture[str], words: list[str], what: str
) -> None:
    assert cli.main(["extender", *words]) == 2
    assert capsys.readouterr().err.startswith(f"error: {what}\n  why: ")
