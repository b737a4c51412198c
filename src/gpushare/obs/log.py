"""Structured logging: one JSON object a line on stderr, `ts`, `level`, `msg`, `logger`, then the caller's fields.

Components call `setup()` once in their `app.py` and `get()` per module. A message is a constant and its values are
fields, so that lines can be counted and nothing is formatted when the level is off. Pass names and numbers only: never
a pod, a spec or a header, which carry other people's secrets.

A line of ours is written by itself, because a record of `logging` costs several times as much as its line, and the
extender writes one for each pod. If anybody besides `setup()` listens, such as a test, `logging` brings it to all.
"""

import contextlib
import json
import logging
import sys
import time
from datetime import UTC, datetime
from json.encoder import encode_basestring_ascii as quoted
from typing import Final, TextIO

from gpushare.obs import errors

LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}
HEAD: Final = ("ts", "level", "msg", "logger")
_NAMES: Final = {number: name for name, number in LEVELS.items()}
UNKNOWN_LEVEL: Final = 'unknown log level "{level}"'


class Log:
    """The log of one module. Made by `get()`."""

    __slots__ = ("_logger",)

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def debug(self, msg: str, **fields: object) -> None:
        self._write(logging.DEBUG, msg, fields)

    def info(self, msg: str, **fields: object) -> None:
        self._write(logging.INFO, msg, fields)

    def warn(self, msg: str, **fields: object) -> None:
        self._write(logging.WARNING, msg, fields)

    def error(self, msg: str, **fields: object) -> None:
        self._write(logging.ERROR, msg, fields)

    def _write(self, level: int, msg: str, fields: dict[str, object]) -> None:
        if not self._logger.isEnabledFor(level):
            return
        ours = logging.root.handlers[0] if len(logging.root.handlers) == 1 else None
        if not (isinstance(ours, Stderr) and ours.write_line(self._logger.name, level, msg, fields)):
            self._logger.log(level, "%s", msg, extra={"fields": fields})


class Stderr(logging.StreamHandler[TextIO]):
    """Records of libraries, and lines of ours."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(Lines())
        self._second, self._stamp = 0, ""

    def write_line(self, name: str, level: int, msg: str, fields: dict[str, object]) -> bool:
        """The same line as for a record. False: it could not be written; `logging` knows what to do then."""
        try:
            text = "".join([self._head(name, level, msg), *map(_field, fields.items()), "}\n"])
            with self.lock or contextlib.nullcontext():
                self.stream.write(text)
                self.flush()
        except Exception:  # noqa: BLE001 - a value whose text cannot be made, a stream that is closed
            return False
        return True

    def _head(self, name: str, level: int, msg: str) -> str:
        now = time.time()
        second = int(now)
        if second != self._second:
            self._second, self._stamp = second, datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        stamp = f"{self._stamp}.{int((now - second) * 1000):03}Z"
        head = f'"level": "{_level_name(level)}", "msg": {quoted(msg)}, "logger": {quoted(name)}'
        return f'{{"ts": "{stamp}", {head}'


def _field(field: tuple[str, object]) -> str:
    key, value = field
    if key in HEAD:
        return ""  # no field may replace time, level, message or logger
    text = quoted(value) if type(value) is str else json.dumps(value, default=str)
    return f", {quoted(key)}: {text}"


class Lines(logging.Formatter):
    """A record as one JSON object. Records of libraries pass through it, too: they have no fields."""

    def format(self, record: logging.LogRecord) -> str:
        head = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")[:-6] + "Z",
            "level": _level_name(record.levelno),
            "msg": record.getMessage(),
            "logger": record.name,
        }
        line: dict[str, object] = head | getattr(record, "fields", {}) | head  # no field may replace the head
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = f"{type(record.exc_info[1]).__name__}: {record.exc_info[1]}"
            if logging.root.isEnabledFor(logging.DEBUG):
                line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)  # plain ASCII: no value and no locale can make a line that is not JSON


def setup(level: str) -> None:
    """Sends everything from this level on to stderr, also what libraries log. A second call replaces the first."""
    if level not in LEVELS:
        raise errors.UserError(UNKNOWN_LEVEL.format(level=level), f"levels: {', '.join(LEVELS)}", "LOG_LEVEL=info")
    logging.basicConfig(level=LEVELS[level], handlers=[Stderr()], force=True)


def get(name: str) -> Log:
    return Log(logging.getLogger(name))


def _level_name(number: int) -> str:
    return _NAMES.get(number) or next((name for name, least in reversed(LEVELS.items()) if number >= least), "debug")
