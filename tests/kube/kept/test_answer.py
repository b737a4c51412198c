"""Answers to short writes: whole ones are read, parts of them are waited for, and what is odd is not guessed at."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpushare.kube.kept import answer

HEAD = b"HTTP/1.1 201 Created\r\nAudit-Id: 7\r\nContent-Type: application/json\r\nDate: today\r\n"
COUNTED = HEAD + b"Content-Length: 17\r\n\r\n" + b'{"kind":"Status"}'
CHUNKED = HEAD + b'Transfer-Encoding: chunked\r\n\r\n6\r\n{"kind\r\nB\r\n":"Status"}\r\n0\r\n\r\n'


@pytest.mark.parametrize("data", [COUNTED, CHUNKED])
def test_an_answer_is_read_when_it_is_complete_and_not_before(data: bytes) -> None:
    assert [answer.read(data[:end]) for end in range(len(data))] == [None] * len(data)
    read = answer.read(data)
    assert read is not None
    assert (read.status, read.reason, read.body, read.field(b"date")) == (201, "Created", b'{"kind":"Status"}', "today")
    assert not read.is_last


@pytest.mark.parametrize("data", [COUNTED, CHUNKED])
def test_more_than_one_answer_is_odd(data: bytes) -> None:
    for more in (b"\r", b"x", data):
        with pytest.raises(answer.Odd):
            answer.read(data + more)


def test_a_connection_may_end_with_an_answer() -> None:
    read = answer.read(b"HTTP/1.1 409 Conflict\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
    assert read is not None
    assert (read.status, read.is_last, read.body) == (409, True, b"")


def test_other_fields_may_be_there_twice() -> None:
    read = answer.read(HEAD + b"Warning: a\r\nWarning: \xc3\xa4\r\nContent-Length: 0\r\n\r\n")
    assert read is not None


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/2 200\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n",
        b"nonsense\r\n\r\n",
        HEAD + b"\r\n",  # until the connection ends
        HEAD + b"Content-Length: -1\r\n\r\n",
        HEAD + b"Content-Length: 1, 1\r\n\r\nx",
        HEAD + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\nx",
        HEAD + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;x=y\r\nx\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\nTrailer: x\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n000000000000",
        HEAD + b"a field without a colon\r\nContent-Length: 0\r\n\r\n",
        HEAD + b" folded\r\nContent-Length: 0\r\n\r\n",
        b"x" * (answer.LARGEST + 1),
    ],
)
def test_what_an_api_server_does_not_send_is_odd(data: bytes) -> None:
    with pytest.raises(answer.Odd):
        answer.read(data)


@given(st.binary(max_size=200), st.sampled_from([b"", HEAD, COUNTED, CHUNKED]))
def test_any_bytes_are_an_answer_or_odd_or_wait_for_more(data: bytes, before: bytes) -> None:
    try:
        read = answer.read(before + data)
    except answer.Odd:
        return
    assert read is None or read.body is not None
