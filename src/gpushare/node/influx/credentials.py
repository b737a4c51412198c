"""Where InfluxDB is and who we are there: from the environment, or from files that it names.

Never from the command line, which everybody on the machine can read. Files are read again for each request, so that a
Secret can be changed while we run. No error and no log line has a value of these in it.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from gpushare.node.influx.points import DATABASE
from gpushare.node.influx.protocol import Credentials
from gpushare.obs.errors import UserError

USER, PASSWORD, TOKEN = "INFLUX_USER", "INFLUX_PASSWORD", "INFLUX_TOKEN"
ORG, BUCKET, DATABASE_NAME = "INFLUX_ORG", "INFLUX_BUCKET", "INFLUX_DATABASE"
NAMES: Final = (USER, PASSWORD, TOKEN, ORG, BUCKET, DATABASE_NAME)
FILE: Final = "_FILE"
MOST: Final = 4096  # characters of a value
WAY: Final = "--influx http://influxdb.gpu.svc.cluster.local:8086"

Read = Callable[[str], str]


def _file(path: str) -> str:
    """As much as can be a value, and a little more."""
    with Path(path).open("rb") as file:
        return file.read(4 * MOST + 1).decode()


def read(environment: Mapping[str, str], file: Read = _file) -> Credentials:
    """Raises a UserError that names the variable, never its value."""
    found = {name: _value(name, environment, file) for name in NAMES}
    user, password, token, org, bucket, database = (found[name] for name in NAMES)
    if token and (user or password):
        why = f"{TOKEN} is for InfluxDB 2, {USER} and {PASSWORD} are for InfluxDB 1"
        raise UserError("two ways to log in to InfluxDB", why, f"unset {TOKEN}, or the other two")
    if password and not user:
        raise UserError(f"{PASSWORD} without {USER}", "a password belongs to a user", f"set {USER}")
    made = Credentials(user, password, token, org, bucket or (DATABASE if token else ""), database or DATABASE)
    if made.is_v2 and not org:
        raise UserError(f"{ORG} is missing", "InfluxDB 2 keeps each bucket in an organization", f"set {ORG}")
    return made


def _value(name: str, environment: Mapping[str, str], file: Read) -> str:
    path, value = environment.get(name + FILE, ""), environment.get(name, "")
    if path and value:
        raise UserError(f"{name} is given twice", f"{name}{FILE} names a file with it as well", f"unset {name}")
    if path:
        try:
            value = file(path)
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or "it is not text"
            raise UserError(f"{name}{FILE} cannot be read: {path:.200}", why, "is the Secret mounted there?") from None
    value = value.strip()
    if len(value) > MOST or not value.isprintable():
        why = f"it has a line break in it, another control character, or more than {MOST} characters"
        raise UserError(f"{name} cannot be used", why, f"set {name} to one line of text")
    return value


def check_url(url: str) -> str:
    """The same without a slash at its end. A URL with a password in it is refused, and not repeated."""
    try:
        parts = urlsplit(url)
        has_port = parts.port is None or parts.port > 0
    except ValueError:
        parts, has_port = urlsplit(""), False
    if "@" in url or "?" in url or "#" in url:
        why = "a user, a password or a query does not belong there: everybody on the machine can read it"
        raise UserError("--influx is not only an address", why, f"{WAY}, with {USER} and {PASSWORD} in the environment")
    if parts.scheme not in ("http", "https") or not parts.hostname or not has_port or not url.isprintable():
        raise UserError(f'"{url:.100}" is no address of InfluxDB', "it begins with http:// or https://", WAY)
    return url.rstrip("/")
