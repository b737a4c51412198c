"""The writer against a server that records each request and answers as the test says."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from gpushare.node.influx.buffer import Buffer
from gpushare.node.influx.protocol import Credentials
from gpushare.node.influx.writer import NOT_ALLOWED_SECONDS, RETRY, Writer
from gpushare.obs.errors import UserError
from tests.support.tasks import beside
from tests.support.wait import eventually

SECRET = "hunter2-secret"
V1 = Credentials(user="keti", password=SECRET, database="metric")
V2 = Credentials(token=SECRET, org="lab", bucket="metric", database="metric")
OK = (204, "")
NO_DATABASE = (404, '{"error":"database not found: \\"metric\\""}')


class Server:
    """`answers` are given in turn, the last one for ever."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[web.Request] = []
        self.bodies: list[bytes] = []
        self.answers: list[tuple[int, str]] = [OK]

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.asked.append(request)
        self.bodies.append(gzip.decompress(body) if request.headers.get("Content-Encoding") == "gzip" else body)
        status, text = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return web.Response(status=status, text=text)

    @property
    def paths(self) -> list[str]:
        return [request.path for request in self.asked]

    @property
    def lines(self) -> list[bytes]:
        return [line for body in self.bodies for line in body.splitlines()]


class Work:
    """A writer at work. It never really waits, and time passes when the test says so."""

    def __init__(self, url: str, credentials: Credentials = V1, buffer: Buffer | None = None) -> None:
        self.now = 0.0
        self.slept: list[float] = []
        self.problem: UserError | None = None
        self.buffer = buffer or Buffer()
        self.credentials = credentials
        self.writer = Writer(url, self._read, self.buffer, clock=lambda: self.now, sleep=self._sleep)

    def _read(self) -> Credentials:
        if self.problem is not None:
            raise self.problem
        return self.credentials

    async def _sleep(self, seconds: float) -> None:
        if seconds:
            self.slept.append(seconds)
        await asyncio.sleep(0)


@asynccontextmanager
async def served() -> AsyncIterator[Server]:
    server, app = Server(), web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.01, access_log=None, auto_decompress=False)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with served() as server:
        yield server


async def test_influxdb_1_gets_points_compressed_with_user_and_password(server: Server) -> None:
    work = Work(server.url)
    async with beside(work.writer.run()):
        work.writer.add([b"m f=1i 1", b"m f=2i 2"])
        await eventually(lambda: work.writer.written == 2)
    (request,) = server.asked
    assert (request.method, request.path, dict(request.query)) == ("POST", "/write", {"db": "metric", "precision": "s"})
    assert request.headers["Content-Encoding"] == "gzip"
    assert request.headers["Authorization"] == "Basic a2V0aTpodW50ZXIyLXNlY3JldA=="
    assert server.bodies == [b"m f=1i 1\nm f=2i 2\n"]
    assert (work.writer.waiting, work.slept) == (0, [])


async def test_a_host_that_can_have_no_address_is_a_server_that_does_not_answer() -> None:
    work = Work("http://influx..example:8086")
    async with beside(work.writer.run()):
        work.writer.add([b"m f=1i 1"])
        await eventually(lambda: len(work.slept) > 1)
    assert work.writer.waiting == 1


async def test_influxdb_2_gets_the_same_points_with_token_organization_and_bucket(server: Server) -> None:
    work = Work(server.url + "/behind/a/proxy", V2)
    async with beside(work.writer.run()):
        work.writer.add([b"m f=1i 1"])
        await eventually(lambda: work.writer.written == 1)
    (request,) = server.asked
    assert (request.method, request.path) == ("POST", "/behind/a/proxy/api/v2/write")
    assert dict(request.query) == {"org": "lab", "bucket": "metric", "precision": "s"}
    assert request.headers["Authorization"] == f"Token {SECRET}"
    assert request.headers["Content-Encoding"] == "gzip"
    assert request.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert server.bodies == [b"m f=1i 1\n"]


async def test_without_credentials_none_are_sent(server: Server) -> None:
    work = Work(server.url, Credentials(database="metric"))
    async with beside(work.writer.run()):
        work.writer.add([b"m f=1i 1"])
        await eventually(lambda: work.writer.written == 1)
    assert "Authorization" not in server.asked[0].headers


async def test_a_database_that_is_missing_is_made_and_nothing_is_lost(server: Server) -> None:
    server.answers = [NO_DATABASE, (200, '{"results":[{"statement_id":0}]}'), OK]
    work = Work(server.url)
    async with beside(work.writer.run()):
        work.writer.add([b"m f=1i 1"])
        await eventually(lambda: work.writer.written == 1)
    assert server.paths == ["/write", "/query", "/write"]
    assert server.asked[1].query["q"] == 'CREATE DATABASE "metric"'
    assert (work.writer.failed, work.buffer.dropped) == (0, 0)


async def test_a_database_that_cannot_be_made_is_told_once_and_tried_again_slowly(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.answers = [NO_DATABASE, (403, '{"error":"not an admin"}')] * 3 + [OK]
    work = Work(server.url)
    async with beside(work.writer.run()):
        work.writer.add([b"m f=1i 1"])
        await eventually(lambda: work.writer.written == 1)
    assert work.slept == [NOT_ALLOWED_SECONDS] * 3
    assert len([r for r in caplog.records if r.levelname == "WARNING"]) == 1


@pytest.mark.parametrize("status", [500, 503, 429])
async def test_a_busy_server_is_asked_again_later_and_later_and_nothing_is_lost(server: Server, status: int) -> None:
    server.answers = [(status, "busy")] * 8 + [OK]
    work = Work(server.url)
    async with beside(work.writer.run()):
        work.writer.add([b"m f=1i 1"])
        work.writer.add([b"m f=2i 2"])
        await eventually(lambda: work.writer.written == 2)
    assert len(work.slept) == 8
    assert work.slept[0] <= RETRY[0] * 1.25
    assert max(work.slept) <= RETRY[1]
    assert work.slept[3] > work.slept[0]
    assert server.lines[-2:] == [b"m f=1i 1", b"m f=2i 2"], "in their order"


async def test_a_server_that_is_away_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    async with served() as gone:
        pass
    work = Work(gone.url)
    async with beside(work.writer.run()) as running:
        work.writer.add([b"m f=1i 1"])
        await eventually(lambda: len(work.slept) > 5)
        assert not running.done()
    assert (work.writer.waiting, work.writer.written, work.writer.failed) == (1, 0, 0)
    assert len(caplog.records) == 1, "one line, not one for each attempt"


async def test_a_server_that_is_away_for_good_costs_ten_minutes_of_points_and_no_more() -> None:
    async with served() as gone:
        pass
    work = Work(gone.url)
    async with beside(work.writer.run()):
        for number in range(200):
            work.now += 10.0
            work.writer.add([b"m f=%di 1" % number])
        await eventually(lambda: len(work.slept) > 3)
    assert work.writer.waiting <= 61
    assert work.writer.waiting + work.buffer.dropped == 200


async def test_points_that_influxdb_refuses_are_given_up_with_one_line_and_its_words(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.answers = [(400, '{"error":"partial write: field type conflict ' + "x" * 500 + '"}'), OK]
    work = Work(server.url)
    async with beside(work.writer.run()):
        work.writer.add([b"m f=1i 1", b"m f=2i 2"])
        await eventually(lambda: work.writer.failed == 2)
        work.writer.add([b"m f=3i 3"])
        await eventually(lambda: work.writer.written == 1)
    assert server.bodies[1:] == [b"m f=3i 3\n"]
    (record,) = caplog.records
    said = record.__dict__["fields"]
    assert said["points"] == 2
    assert "partial write: field type conflict" in said["why"]
    assert len(said["why"]) <= 200


async def test_points_that_influxdb_1_takes_beside_bad_ones_are_written_and_the_log_says_it_once(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    conflict = 'partial write: field type conflict: input field \\"Power\\" is type integer, already exists as string'
    server.answers = [(400, f'{{"error":"{conflict} dropped=1"}}'), (400, f'{{"error":"{conflict} dropped=2"}}')]
    work = Work(server.url)
    async with beside(work.writer.run()):
        work.writer.add([b"m f=1i 1", b"m f=2i 2", b"m f=3i 3"])
        await eventually(lambda: work.writer.failed == 1)
        work.writer.add([b"m f=1i 4", b"m f=2i 5", b"m f=3i 6"])
        await eventually(lambda: work.writer.failed == 3)
    assert work.writer.written == 3
    assert len(caplog.records) == 1


async def test_a_request_that_is_too_large_is_divided_until_it_fits(server: Server) -> None:
    server.answers = [(413, "too large"), (413, "too large"), OK]
    work = Work(server.url)
    async with beside(work.writer.run()):
        work.writer.add([b"m f=%di 1" % number for number in range(8)])
        await eventually(lambda: work.writer.written == 8)
    assert [len(body.splitlines()) for body in server.bodies] == [8, 4, 2, 2, 4]
    assert sorted(set(server.lines)) == [b"m f=%di 1" % number for number in range(8)]
    assert work.writer.failed == 0


async def test_a_single_point_that_is_too_large_is_given_up(server: Server) -> None:
    server.answers = [(413, "too large"), OK]
    work = Work(server.url)
    async with beside(work.writer.run()):
        work.writer.add([b"m f=1i 1"])
        await eventually(lambda: work.writer.failed == 1)


async def test_a_server_for_which_everything_is_too_large_is_asked_less_and_less_often(server: Server) -> None:
    server.answers = [(413, "too large")] * 20
    work = Work(server.url)
    async with beside(work.writer.run()):
        work.writer.add([b"m f=%di 1" % number for number in range(8)])
        await eventually(lambda: work.writer.failed == 8)
    assert len(work.slept) >= 14
    assert max(work.slept) > 5


@pytest.mark.parametrize("status", [401, 403, 302])
async def test_wrong_credentials_are_told_once_tried_again_slowly_and_read_anew(
    server: Server, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    server.answers = [(status, f"password {SECRET} is wrong")] * 3 + [OK]
    work = Work(server.url)
    async with beside(work.writer.run()):
        work.writer.add([b"m f=1i 1"])
        await eventually(lambda: work.writer.written == 1)
    assert work.slept == [NOT_ALLOWED_SECONDS] * 3
    assert [record.levelname for record in caplog.records if record.levelno > 20] == ["WARNING"]
    assert SECRET not in "".join(str(record.__dict__) for record in caplog.records)


async def test_credentials_that_cannot_be_read_keep_points_until_they_can(server: Server) -> None:
    work = Work(server.url)
    work.problem = UserError("INFLUX_TOKEN_FILE cannot be read", "no such file", "is the Secret mounted there?")
    async with beside(work.writer.run()):
        work.writer.add([b"m f=1i 1"])
        await eventually(lambda: work.slept)
        assert server.asked == []
        work.problem = None
        await eventually(lambda: work.writer.written == 1)


async def test_a_writer_that_ends_while_it_sends_counts_its_points_as_waiting() -> None:
    work = Work("http://127.0.0.1:9")
    work.writer.add([b"m f=1i 1"])
    assert work.writer.waiting == 1
    work.writer.add([])
    assert work.writer.waiting == 1, "nothing is no point"
