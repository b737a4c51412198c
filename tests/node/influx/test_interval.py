"""How often points are written: KETI's ConfigMap counts while it is there and says a number."""

import pytest

from gpushare.core.facts import objects
from gpushare.kube import reflector
from gpushare.node.influx import interval
from gpushare.node.influx.interval import KEY, NAME, Interval
from tests.support.objects import Object
from tests.support.scripted_api import page, refuse, serve_api, watch
from tests.support.tasks import beside
from tests.support.wait import eventually

PATH = "/api/v1/namespaces/gpu/configmaps"


def config_map(text: str | None) -> objects.ConfigMap:
    return objects.ConfigMap(objects.Metadata(name=NAME), None if text is None else {KEY: text})


def as_sent(text: str, version: str) -> Object:
    metadata = {"name": NAME, "namespace": "gpu", "resourceVersion": version}
    return {"metadata": metadata, "data": {KEY: text}}


def test_the_config_map_counts_while_it_is_there() -> None:
    held = Interval(10.0)
    held.upsert(config_map("3"))
    assert held.seconds == 3.0
    held.upsert(config_map(" 20\n"))
    assert held.seconds == 20.0
    held.remove(config_map("20"))
    assert held.seconds == 10.0


def test_a_config_map_without_the_key_or_that_is_gone_leaves_what_was_given() -> None:
    held = Interval(7.0)
    held.upsert(config_map("3"))
    held.upsert(config_map(None))
    assert held.seconds == 7.0
    held.upsert(config_map("3"))
    held.relisted(set())
    assert held.seconds == 7.0


@pytest.mark.parametrize("text", ["", "0", "-5", "fast", "3601", "1e3", "10s", "٣", "9" * 5000])
def test_a_bad_value_is_told_and_the_last_one_stays(text: str, caplog: pytest.LogCaptureFixture) -> None:
    held = Interval(10.0)
    held.upsert(config_map("3"))
    caplog.clear()
    held.upsert(config_map(text))
    assert held.seconds == 3.0
    (record,) = caplog.records
    assert len(str(record.__dict__["fields"])) < 400


async def test_a_change_counts_at_once() -> None:
    async with serve_api() as (server, api):
        server.on(f"GET {PATH}", page([as_sent("4", "5")], "5"))
        changed = {"type": "MODIFIED", "object": as_sent("2", "6")}
        server.on(f"WATCH {PATH}", watch(changed, then="hang"))
        held = Interval(10.0)
        async with beside(interval.watch(api, held).run()):
            await eventually(lambda: held.seconds == 2.0)
    assert {asked.query["fieldSelector"] for asked in server.asked if asked.path == PATH} == {f"metadata.name={NAME}"}


async def test_without_the_right_to_read_it_that_is_said_once_and_it_is_asked_again_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    slept = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async with serve_api() as (server, api):
        server.on(f"GET {PATH}", refuse(403), refuse(403), page([as_sent("4", "5")], "5"))
        server.on(f"WATCH {PATH}", watch(then="hang"))
        held = Interval(10.0)
        async with beside(interval.watch(api, held, sleep=sleep).run()):
            await eventually(lambda: held.seconds == 4.0)
    assert slept[:2] == [reflector.MISSING_DELAY] * 2
    assert [record.levelname for record in caplog.records].count("WARNING") == 1
