"""The command line of `gpushare dashboard`."""

from collections.abc import Iterator
from typing import Any

import pytest

from gpushare import cli
from gpushare.dashboard import app
from gpushare.dashboard.app import Config
from gpushare.kube.auth import login


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    import logging

    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """What the command line makes of its words. Nothing runs."""
    found: list[Config] = []

    async def run(config: Config, *_: Any) -> None:
        found.append(config)

    monkeypatch.setattr(app, "run", run)
    monkeypatch.setattr(login, "load", lambda *_: None)
    monkeypatch.delenv("LOG_LEVEL", raising=False)
    return found


def error(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main(["dashboard", *words]) == 2
    said = capsys.readouterr().err
    assert [line[:7] for line in said.splitlines()] == ["error: ", "  why: ", "  try: "]
    return said


def test_help_fits_a_terminal_and_has_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["dashboard", "--help"]) == 0
    page = capsys.readouterr().out
    assert len(page.splitlines()) < 24
    assert max(map(len, page.splitlines())) <= 80
    known = error(capsys, "--zzz").partition("knows ")[2].partition("\n")[0].split(", ")
    assert [option for option in known if option not in page] == []


def test_alone_it_is_for_this_machine_and_opens_no_browser_without_a_terminal(started: list[Config]) -> None:
    assert cli.main(["dashboard"]) == 0
    assert started == [Config("127.0.0.1", 0)]


def test_on_a_terminal_it_opens_the_browser_unless_told_otherwise(
    started: list[Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    cli.main(["dashboard"])
    cli.main(["dashboard", "--no-browser", "--port", "8080"])
    assert [(config.browser, config.port) for config in started] == [(True, 0), (False, 8080)]


def test_in_a_cluster_it_listens_for_everybody_with_tls(started: list[Config]) -> None:
    words = ["--host", "gpus.example.com", "10.0.0.1:9443", "--host", "other", "--prometheus", "http://prom:9090/x"]
    cli.main(["dashboard", "--in-cluster", *words])
    assert started == [
        Config("0.0.0.0", 8443, in_cluster=True, hosts=("gpus.example.com", "10.0.0.1:9443", "other"),
               prometheus="http://prom:9090/x")
    ]  # fmt: skip


def test_behind_a_proxy_it_is_plain_http_on_loopback(started: list[Config], capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["dashboard", "--in-cluster", "--behind-proxy", "--port", "8080"])
    assert started == [Config("127.0.0.1", 8080, in_cluster=True, behind_proxy=True)]
    assert "not this machine's loopback" in error(capsys, "--in-cluster", "--behind-proxy", "--listen", "0.0.0.0")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--listen", "0.0.0.0"], "not this machine's loopback"),
        (["--host", "a.example"], "--host needs --in-cluster"),
        (["--behind-proxy"], "--behind-proxy needs --in-cluster"),
        (["--tls-cert", "f", "--tls-key", "k"], "--tls-cert needs --in-cluster"),
        (["--in-cluster", "--tls-cert", "f"], "a TLS file is missing"),
        (["--in-cluster", "--behind-proxy", "--tls-cert", "f", "--tls-key", "k"], "do not go together"),
        (["--in-cluster", "--no-browser"], "do not go together"),
        (["--in-cluster", "--host", "https://a.example"], "is not a host"),
        (["--in-cluster", "--host", "a b"], "is not a host"),
        (["--prometheus", "prom:9090"], "is not the address of a Prometheus"),
        (["--prometheus", "http://[::1"], "is not the address of a Prometheus"),
        (["--port", "http"], "is not a port"),
        (["--log-level", "loud"], "unknown log level"),
        (["now"], "unexpected word"),
    ],
)
def test_what_cannot_be_meant_is_said_in_three_lines(
    started: list[Config], capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert said in error(capsys, *words)
    assert started == []
