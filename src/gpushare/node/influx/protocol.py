"""What InfluxDB 1 and 2 are sent, and what their answers mean. Pure."""

import base64
import re
from enum import Enum, auto
from typing import Final, NamedTuple

PRECISION: Final = "s"
DROPPED: Final = re.compile(r"^400 .*partial write.* dropped=(\d{1,9})\b", re.DOTALL)
LONGEST_WORDS: Final = 200  # characters of a server's own words


class Credentials(NamedTuple):
    """`token` or `bucket`: InfluxDB 2. Else it is InfluxDB 1, with or without a user."""

    user: str = ""
    password: str = ""
    token: str = ""
    org: str = ""
    bucket: str = ""
    database: str = ""

    @property
    def is_v2(self) -> bool:
        return bool(self.token or self.bucket)

    def hidden_in(self, text: str) -> str:
        """The text without our secrets: a server may repeat what it was sent."""
        for secret in (self.password, self.token, *(login.split()[1] for login in _login(self).values())):
            text = text.replace(secret, "***") if secret else text
        return text


class Verdict(Enum):
    WRITTEN = auto()
    NO_DATABASE = auto()  # InfluxDB 1 can be asked to make it
    TOO_LARGE = auto()
    BAD = auto()  # some of these points can never be written
    NOT_ALLOWED = auto()  # nor found: somebody has to do something
    LATER = auto()


class Request(NamedTuple):
    path: str
    query: dict[str, str]
    headers: dict[str, str]


def write(credentials: Credentials) -> Request:
    headers = {"Content-Type": "text/plain; charset=utf-8", "Content-Encoding": "gzip"} | _login(credentials)
    if credentials.is_v2:
        query = {"org": credentials.org, "bucket": credentials.bucket, "precision": PRECISION}
        return Request("/api/v2/write", query, headers)
    return Request("/write", {"db": credentials.database, "precision": PRECISION}, headers)


def create_database(credentials: Credentials) -> Request:
    """InfluxDB 1 only. It changes nothing if the database is there; how long points are kept is left to its admin."""
    name = credentials.database.replace("\\", "\\\\").replace('"', '\\"')
    return Request("/query", {"q": f'CREATE DATABASE "{name}"'}, _login(credentials))


def verdict(status: int, words: str, *, is_v2: bool) -> Verdict:
    """`words`: the body of the answer."""
    if 200 <= status < 300:
        return Verdict.WRITTEN
    if status == 413:
        return Verdict.TOO_LARGE
    if status == 404 and not is_v2 and "database not found" in words:
        return Verdict.NO_DATABASE
    if status in (400, 422):
        return Verdict.BAD
    return Verdict.LATER if status in (408, 429) or status >= 500 else Verdict.NOT_ALLOWED


def refused(words: str, points: int) -> int:
    """How many of these points InfluxDB has not taken. InfluxDB 1 takes the others, and says how many it dropped."""
    dropped = DROPPED.search(words)
    return min(int(dropped[1]), points) if dropped else points


def shortened(words: str) -> str:
    return " ".join(words.split())[:LONGEST_WORDS]


def _login(credentials: Credentials) -> dict[str, str]:
    if credentials.token:
        return {"Authorization": f"Token {credentials.token}"}
    if credentials.user:
        pair = base64.b64encode(f"{credentials.user}:{credentials.password}".encode()).decode()
        return {"Authorization": f"Basic {pair}"}
    return {}
