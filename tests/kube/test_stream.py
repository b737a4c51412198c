"""Lines out of chunks of any size."""

import asyncio
import json
import time

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from gpushare.core.facts import objects
from gpushare.kube import resources, stream
from gpushare.kube.errors import ApiError, Malformed, Unreachable
from tests.support.scripted_api import bookmark, event, pod, serve_api, watch

PODS = resources.PODS.collection()


@given(st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"")), max_size=20), st.data())
def test_lines_come_out_whole_wherever_they_are_cut(lines: list[bytes], data: st.DataObject) -> None:
    text = b"".join(line + b"\n" for line in lines) + b"rest"
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=20)))
    fed = stream.Lines()
    out: list[bytes] = []
    for start, stop in zip([0, *places], [*places, len(text)], strict=True):
        out += fed.feed(text[start:stop])
    assert out == [line for line in lines if line]


def test_a_line_of_many_megabytes_takes_time_in_proportion() -> None:
    lines, piece, begun = stream.Lines(), b"x" * 1024, time.process_time()
    for _ in range(32 * 1024):
        assert lines.feed(piece) == []
    (line,) = lines.feed(b"\n")
    assert len(line) == 32 << 20
    assert time.process_time() - begun < 2.0  # quadratic would be minutes


async def collect(*sent: dict[str, object] | bytes, then: str = "end", silence: float = 5.0) -> list[tuple[str, str]]:
    async with serve_api() as (server, client):
        server.on(f"WATCH {PODS}", watch(*sent, then=then))
        async with client.watch(
            resources.PODS, objects.Pod, "7", query={"labelSelector": "a=b"}, silence=silence
        ) as events:
            seen = [(e.type, e.object.metadata.name if e.object else e.resource_version) async for e in events]
        assert server.asked[0].query == {
            "watch": "true",
            "resourceVersion": "7",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": "300",
            "labelSelector": "a=b",
        }
        return seen


async def test_events_and_bookmarks_arrive_in_order() -> None:
    seen = await collect(event("ADDED", pod("a", 8)), bookmark(9), event("DELETED", pod("a", 10)))
    assert seen == [("ADDED", "a"), ("BOOKMARK", "9"), ("DELETED", "a")]


async def test_an_event_cut_off_at_the_end_is_left_out() -> None:
    assert await collect(event("ADDED", pod("a", 8)), b'{"type": "ADDED", "obj') == [("ADDED", "a")]


async def test_a_large_event_arrives_whole() -> None:
    large = json.dumps(event("ADDED", pod("a", 8, annotations={"x": "y" * (3 << 20)}))).encode() + b"\n"
    pieces = [large[i : i + 100_000] for i in range(0, len(large), 100_000)]
    assert await collect(*pieces) == [("ADDED", "a")]


async def test_an_error_event_is_raised_as_what_it_says() -> None:
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old", "status": "Failure"}
    with pytest.raises(ApiError) as caught:
        await collect({"type": "ERROR", "object": gone})
    assert (caught.value.status, caught.value.reason) == (410, "Expired")


@pytest.mark.parametrize(
    "line", [b"not json\n", b"[]\n", b"\xff\xfe\n", b'{"type": "ADDED", "object": {"metadata": {"name": 7}}}\n']
)
async def test_what_cannot_be_decoded_is_said_without_quoting_it(line: bytes) -> None:
    with pytest.raises(Malformed, match=r"^/api/v1/pods: ") as caught:
        await collect(line)
    assert "not json" not in str(caught.value)


async def test_silence_is_told_again_and_again_and_ends_nothing() -> None:
    released = asyncio.Event()

    async def quiet(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await released.wait()
        await response.write(json.dumps(event("ADDED", pod("a", 8))).encode() + b"\n")
        return response

    async with serve_api() as (server, client):
        server.on(f"WATCH {PODS}", quiet)
        seen = []
        async with client.watch(resources.PODS, objects.Pod, "7", silence=0.01) as events:
            async for one in events:
                seen.append(one.type)
                if len(seen) == 3:
                    released.set()
    assert seen[:3] == [stream.SILENT] * 3
    assert seen[-1] == stream.ADDED


async def test_a_cut_connection_is_noticed() -> None:
    with pytest.raises(Unreachable, match="the connection was lost"):
        await collect(event("ADDED", pod("a", 8)), then="cut")


async def test_a_watch_that_is_left_is_closed() -> None:
    closed = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(json.dumps(event("ADDED", pod("a", 8))).encode() + b"\n")
        try:
            while True:
                await response.write(b"\n")
                await asyncio.sleep(0.005)
        except ConnectionError:
            closed.set()
            raise

    async with serve_api() as (server, client):
        server.on(f"WATCH {PODS}", handler)
        async with client.watch(resources.PODS, objects.Pod, "7") as events:
            async for _ in events:
                break
        await asyncio.wait_for(closed.wait(), 5)
