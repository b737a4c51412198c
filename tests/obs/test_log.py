"""Log lines are one JSON object each, whoever wrote them and whatever is in them."""

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gpushare.obs import errors, log

Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture(autouse=True)
def root_logger_as_before() -> Iterator[None]:
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


@pytest.fixture
def written(capsys: pytest.CaptureFixture[str]) -> Lines:
    return lambda: [json.loads(line) for line in capsys.readouterr().err.splitlines()]


class Untouchable:
    """Fails the test if anybody turns it into text."""

    def __str__(self) -> str:
        raise AssertionError("formatted although its level is off")

    __repr__ = __str__


def test_a_line_has_time_level_message_and_then_the_fields(written: Lines) -> None:
    log.setup("info")
    log.get("gpushare.extender").info("bound", pod="default/llm", gpu=1)
    [line] = written()
    assert list(line) == ["ts", "level", "msg", "logger", "pod", "gpu"]
    assert (line["level"], line["msg"], line["pod"], line["gpu"]) == ("info", "bound", "default/llm", 1)
    assert line["ts"][10] == "T"
    assert line["ts"][19] == "."
    assert line["ts"].endswith("Z")


def test_levels_are_called_as_in_log_level(written: Lines) -> None:
    log.setup("debug")
    ours = log.get("x")
    for write in (ours.debug, ours.info, ours.warn, ours.error):
        write("said")
    assert [line["level"] for line in written()] == ["debug", "info", "warn", "error"]


@pytest.mark.parametrize(("level", "lines"), [("debug", 4), ("info", 3), ("warn", 2), ("error", 1)])
def test_a_level_hides_what_is_below_it(level: str, lines: int, written: Lines) -> None:
    log.setup(level)
    ours = log.get("x")
    for write in (ours.debug, ours.info, ours.warn, ours.error):
        write("said")
    assert len(written()) == lines


def test_nothing_is_formatted_when_the_level_is_off(written: Lines) -> None:
    log.setup("info")
    log.get("x").debug("asked", value=Untouchable())
    assert written() == []


def test_a_message_is_never_a_format_string(written: Lines) -> None:
    log.setup("info")
    log.get("x").info("100% full, %s")
    assert written()[0]["msg"] == "100% full, %s"


def test_a_line_break_in_a_value_does_not_start_a_new_line(written: Lines) -> None:
    log.setup("info")
    log.get("x").info("refused", why='first\n{"level": "error"}')
    assert [line["why"] for line in written()] == ['first\n{"level": "error"}']


def test_a_field_cannot_pretend_another_time_or_level(written: Lines) -> None:
    log.setup("info")
    log.get("x").info("said", level="error", ts="never", logger="y")
    [line] = written()
    assert (line["level"], line["logger"]) == ("info", "x")
    assert line["ts"] != "never"


def test_a_value_json_does_not_know_is_written_as_text(written: Lines) -> None:
    log.setup("info")
    log.get("x").info("said", error=ValueError("no"))
    assert written()[0]["error"] == "no"


def test_a_name_that_is_not_unicode_does_not_lose_the_line(written: Lines) -> None:
    log.setup("info")
    log.get("x").info("said", file="\udc80")
    assert written()[0]["file"] == "\udc80"


FIELDS: list[dict[str, Any]] = [
    {},
    {"pod": "default/llm", "gpu": 1, "share": 0.5, "ok": True, "none": None},
    {"why": 'first\n"second"', "where": "가 – é", "odd": "\udc80", 'key with "': "x"},
    {"ts": "never", "level": "error", "logger": "y"},
    {"ports": [1, 2], "by": {"a": (1, 2)}, "error": ValueError("no"), "large": 10**30, "infinite": float("inf")},
]


@pytest.mark.parametrize("fields", FIELDS)
def test_a_line_is_the_same_whether_others_listen_or_not(fields: dict[str, Any], written: Lines) -> None:
    log.setup("info")
    log.get("x").info('say "it"', **fields)
    logging.root.addHandler(logging.NullHandler())
    log.get("x").info('say "it"', **fields)
    alone, among_others = written()
    assert list(alone.items())[1:] == list(among_others.items())[1:]
    assert len(alone["ts"]) == len(among_others["ts"])


def test_who_listens_besides_gets_every_line(caplog: pytest.LogCaptureFixture) -> None:
    log.setup("info")
    logging.root.addHandler(caplog.handler)
    log.get("x").info("said", pod="p")
    assert [record.message for record in caplog.records] == ["said"]


def test_a_value_without_a_text_does_not_stop_the_caller(capsys: pytest.CaptureFixture[str]) -> None:
    log.setup("info")
    log.get("x").info("said", value=Untouchable())
    assert "formatted although its level is off" in capsys.readouterr().err


def test_other_libraries_speak_in_the_same_form(written: Lines) -> None:
    log.setup("info")
    logging.getLogger("aiohttp.server").critical("lost %d connections", 3)
    [line] = written()
    assert (line["level"], line["msg"], line["logger"]) == ("error", "lost 3 connections", "aiohttp.server")


def test_a_layer_that_does_not_know_this_one_can_give_fields_too(written: Lines) -> None:
    log.setup("info")
    logging.getLogger("gpushare.kube").warning("lost touch", extra={"fields": {"path": "/api/v1/pods"}})
    assert written()[0]["path"] == "/api/v1/pods"


@pytest.mark.parametrize(("level", "traced"), [("info", False), ("debug", True)])
def test_a_stack_trace_is_for_debugging_only(level: str, traced: bool, written: Lines) -> None:
    log.setup(level)
    try:
        raise ValueError("no such GPU")
    except ValueError:
        logging.getLogger("asyncio").exception("task failed")
    [line] = written()
    assert line["error"] == "ValueError: no such GPU"
    assert ("trace" in line) is traced


def test_setting_up_again_does_not_write_twice(written: Lines) -> None:
    log.setup("info")
    log.setup("info")
    log.get("x").info("once")
    assert len(written()) == 1


def test_an_unknown_level_is_refused_with_the_known_ones() -> None:
    with pytest.raises(errors.UserError) as refused:
        log.setup("verbose")
    assert refused.value.render() == (
        'error: unknown log level "verbose"\n  why: levels: debug, info, warn, error\n  try: LOG_LEVEL=info'
    )
