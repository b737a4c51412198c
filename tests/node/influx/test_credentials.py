"""Where credentials come from, and that no sentence has one in it."""

import base64
from pathlib import Path

import pytest

from gpushare.node.influx import credentials
from gpushare.node.influx.protocol import Credentials
from gpushare.obs.errors import UserError

SECRET = "hunter2-secret"


def refused(environment: dict[str, str]) -> str:
    with pytest.raises(UserError) as caught:
        credentials.read(environment)
    assert SECRET not in caught.value.render()
    return caught.value.what


def test_without_any_it_is_influxdb_1_without_a_user() -> None:
    found = credentials.read({})
    assert found == Credentials(database="metric")
    assert not found.is_v2


def test_user_password_and_database_are_those_of_influxdb_1() -> None:
    given = {"INFLUX_USER": "keti", "INFLUX_PASSWORD": SECRET, "INFLUX_DATABASE": "gpus"}
    found = credentials.read(given)
    assert (found.user, found.password, found.database, found.is_v2) == ("keti", SECRET, "gpus", False)


@pytest.mark.parametrize("given", [{"INFLUX_TOKEN": SECRET}, {"INFLUX_BUCKET": "metric"}])
def test_a_token_or_a_bucket_means_influxdb_2(given: dict[str, str]) -> None:
    found = credentials.read({**given, "INFLUX_ORG": "lab"})
    assert (found.is_v2, found.bucket, found.org) == (True, "metric", "lab")


def test_a_file_is_read_again_each_time_so_that_a_changed_secret_counts(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{SECRET}\n")
    given = {"INFLUX_USER": "keti", "INFLUX_PASSWORD_FILE": str(file)}
    assert credentials.read(given).password == SECRET
    file.write_text("another")
    assert credentials.read(given).password == "another"


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"INFLUX_TOKEN": SECRET, "INFLUX_USER": "a", "INFLUX_ORG": "o"}, "two ways to log in to InfluxDB"),
        ({"INFLUX_TOKEN": SECRET}, "INFLUX_ORG is missing"),
        ({"INFLUX_PASSWORD": SECRET}, "INFLUX_PASSWORD without INFLUX_USER"),
        ({"INFLUX_TOKEN": SECRET, "INFLUX_TOKEN_FILE": "/x"}, "INFLUX_TOKEN is given twice"),
        ({"INFLUX_TOKEN": f"{SECRET}\r\nX-Header: 1", "INFLUX_ORG": "o"}, "INFLUX_TOKEN cannot be used"),
        ({"INFLUX_TOKEN": SECRET * 1000, "INFLUX_ORG": "o"}, "INFLUX_TOKEN cannot be used"),
        ({"INFLUX_TOKEN_FILE": "/dev/zero"}, "INFLUX_TOKEN cannot be used"),  # which has no end
        ({"INFLUX_TOKEN_FILE": "/no/such/file"}, "INFLUX_TOKEN_FILE cannot be read: /no/such/file"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_the_name_of_the_variable(given: dict[str, str], what: str) -> None:
    assert refused(given) == what


@pytest.mark.parametrize(
    "url",
    [
        f"http://keti:{SECRET}@influxdb:8086",
        f"http://influxdb:8086/?u=keti&p={SECRET}",
        f"keti:{SECRET}@influxdb",
        f"http://influxdb:8086/#{SECRET}",
    ],
)
def test_an_address_with_a_password_in_it_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(UserError) as caught:
        credentials.check_url(url)
    assert SECRET not in caught.value.render()
    assert "INFLUX_PASSWORD" in caught.value.way


@pytest.mark.parametrize("url", ["influxdb:8086", "ftp://influxdb", "http://", "http://a:99999", "http://[x", "h\n"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(UserError, match="no address of InfluxDB"):
        credentials.check_url(url)


def test_an_address_may_have_a_path() -> None:
    assert credentials.check_url("https://proxy.example/influx/") == "https://proxy.example/influx"


def test_a_servers_words_are_repeated_without_our_secrets() -> None:
    found = Credentials(user="keti", password=SECRET)
    assert found.hidden_in(f"bad password {SECRET}!") == "bad password ***!"
    sent = base64.b64encode(f"keti:{SECRET}".encode()).decode()
    assert found.hidden_in(f"Authorization: Basic {sent}") == "Authorization: Basic ***"
