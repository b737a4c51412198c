"""Structured logging: one JSON object a line on stderr, `ts`, `level`, `msg`, `logger`, then the caller's fields.

Components call `setup()` once in their `app.py` and `get()` per module. A message is a constant and its values are
fields, so that lines can be counted and nothing is formatted when the level is off. Pass names and numbers only: never
a pod, a spec or a header, which carry other people's secrets.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final

from gpushare.obs import errors

LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}
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
        if self._logger.isEnabledFor(level):
            self._logger.log(level, "%s", msg, extra={"fields": fields})


class Lines(logging.Formatter):
    """A record as one JSON object. Records of libraries pass through it, too: they have no fields."""

    def format(self, record: logging.LogRecord) -> str:
        head = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")[:-6] + "Z",
            "level": _level_name(record.levelno),
            "msg": record.getMessage(),
            "logger": record.name,
        }
        line: dict[str, object] = (
            head | getattr(record, "fields", {}) | head
        )  # no field may replace time, level, message or logger
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = f"{type(record.exc_info[1]).__name__}: {record.exc_info[1]}"
            if logging.root.isEnabledFor(logging.DEBUG):
                line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)  # plain ASCII: no value and no locale can make a line that is not JSON


def setup(level: str) -> None:
    """Sends everything from this level on to stderr, also what libraries log. A second call replaces the first."""
    if level not in LEVELS:
        raise errors.UserError(UNKNOWN_LEVEL.format(level=level), f"levels: {', '.join(LEVELS)}", "LOG_LEVEL=info")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines())
    logging.basicConfig(level=LEVELS[level], handlers=[handler], force=True)


def get(name: str) -> Log:
    return Log(logging.getLogger(name))


def _level_name(number: int) -> str:
    return next((name for name, least in reversed(LEVELS.items()) if number >= least), "debug")
