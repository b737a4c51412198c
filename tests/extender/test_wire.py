"""Names of nodes that are not read are the same names: whatever is sent, the answer is that of reading all of it."""

import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpushare.extender import wire
from gpushare.extender.wire import BadRequest
from tests.extender import mutants
from tests.support import embedded_objects, extender_process

POD = json.dumps(embedded_objects.pod("train", 3000), separators=(",", ":"))
BODIES = 1_000


def read_all(body: bytes) -> tuple[object, list[str]]:
    """The pod, and all names, out of a body that is read from its first to its last byte."""
    args = wire._decode(wire._args, body)
    if args.pod is None or (args.node_names is None and args.nodes is None):
        args = wire._decode(wire._args, wire._spelled(body, ("Pod", "Nodes", "NodeNames")))
    if args.pod is None:
        raise BadRequest("no Pod is given")
    if args.node_names is not None:
        return args.pod, args.node_names
    if args.nodes is None:
        raise BadRequest("neither NodeNames nor Nodes is given")
    return args.pod, list({wire._name(item): item for item in args.nodes.items or ()})


def answer(read: Any, body: bytes) -> object:
    try:
        pod, names = read(body)
    except BadRequest as error:
        return str(error)
    return pod, names


def sent(body: bytes) -> tuple[object, list[str]]:
    pod, offer = wire.read_few(body)
    return pod, list(offer.names)


def usual(names: str, before: str = '"Nodes":null,') -> bytes:
    return f'{{"Pod":{POD},{before}"NodeNames":{names}}}'.encode()


CASES = {
    "usual": usual('["a","b-1.x","c"]'),
    "one": usual('["a"]'),
    "none": usual("[]"),
    "an empty name": usual('[""]'),
    "empty names": usual('["a","",""]'),
    "null": usual("null"),
    "numbers among names": usual('["a",1,"b"]'),
    "a number at the end": usual('["a","b",1]'),
    "a null among names": usual('["a",null,"b"]'),
    "a list among names": usual('["a",["b"],"c"]'),
    "an object": usual('{"a":"b"}'),
    "a text": usual('"a"'),
    "twice the same": usual('["a","a"]'),
    "spaces": usual('["a", "b"]'),
    "escapes": usual('["n\\u002d1","a\\"b"]'),
    "a name with a comma": usual('["a",",","b"]'),
    "capitals": usual('["A","b"]'),
    "not ASCII": usual('["日本","b"]'),
    "cut": usual('["a","b"]')[:-2],
    "cut in a name": usual('["a","b"]')[:-4],
    "more behind it": usual('["a","b"]') + b"}",
    "a newline behind it": usual('["a","b"]') + b"\n",
    "names twice": usual('["a"]', '"NodeNames":["b"],'),
    "names twice, first wrong": usual('["a"]', '"NodeNames":5,'),
    "names twice, first null": usual('["a"]', '"NodeNames":null,'),
    "pod twice": usual('["a"]', '"Pod":{},'),
    "pod twice, then null": usual('["a"]', '"Pod":null,'),
    "both": usual('["a"]', '"Nodes":{"items":[{"metadata":{"name":"b"}}]},'),
    "both, nodes wrong": usual('["a"]', '"Nodes":{"items":5},'),
    "an unknown key": usual('["a"]', '"Other":{"x":[1,2]},'),
    "an unknown key, wrong": usual('["a"]', '"Other":{"x":[1,2},'),
    "names inside of something": usual('["a"]', '"Other":{"x":1,"NodeNames":["b"]},'),
    "names only inside of something": f'{{"Pod":{POD},"Other":{{"x":1,"NodeNames":["b"]}}}}'.encode(),
    "names inside of the pod": b'{"Pod":{"x":1,"NodeNames":["b"]}}',
    "no pod": b'{"Nodes":null,"NodeNames":["a"]}',
    "only names": b'{"NodeNames":["a"]}',
    "a comma first": b'{,"NodeNames":["a"]}',
    "a pod of null": b'{"Pod":null,"NodeNames":["a"]}',
    "a wrong pod": b'{"Pod":{"metadata":5},"NodeNames":["a"]}',
    "lower case": f'{{"pod":{POD},"nodenames":["a","b"]}}'.encode(),
    "half lower case": f'{{"pod":{POD},"NodeNames":["a","b"]}}'.encode(),
    "names before the pod": f'{{"NodeNames":["a","b"],"Pod":{POD}}}'.encode(),
    "bytes that are no text": usual('["a"]', '"Other":"X",').replace(b"X", b"\xff"),
    "a name that is no text": usual('["aX"]').replace(b"X", b"\xff"),
    "a zero byte": usual('["a\x00"]'),
    "empty": b"",
    "a list": b'["a"]}',
}


@pytest.mark.parametrize("body", CASES.values(), ids=CASES)
def test_each_body_is_answered_as_if_all_of_it_were_read(body: bytes) -> None:
    assert answer(sent, body) == answer(read_all, body)


def test_broken_bodies_are_answered_as_if_all_of_them_were_read() -> None:
    asked = embedded_objects.pod("train", 3000)
    asked["metadata"]["uid"] = "uid-train"
    dice, valid = random.Random(5), mutants.requests(asked)["choose"]
    for _ in range(BODIES):
        body = mutants.broken(dice, dice.choice(valid))
        with_no_spaces = body.replace(b'": ', b'":').replace(b", ", b",")
        for one in (body, with_no_spaces):
            assert answer(sent, one) == answer(read_all, one), one


NAMES = st.lists(st.text('ab-.," \\x', max_size=3))


@given(NAMES, NAMES)
def test_an_unread_name_is_found_if_and_only_if_it_is_offered(offered: list[str], asked: list[str]) -> None:
    question = extender_process.question(embedded_objects.pod("train", 3000), offered)
    _, offer = wire.read_few(msgspec.json.encode(question))
    for name in [*asked, *offered, ",", '","', ""]:
        assert (name in offer) is (name in offered)
    assert list(offer.names) == offered
    assert offer.of_these(asked) == [name for name in asked if name in offered]


def test_the_usual_body_is_not_read_further_than_needed() -> None:
    question = extender_process.question(embedded_objects.pod("train", 3000), [f"node-{i}" for i in range(500)])
    _, offer = wire.read_few(msgspec.json.encode(question))
    assert "node-77" in offer
    assert "node-500" not in offer
    assert offer._names is None
    assert offer.few(1) is None
    assert offer._names is None
    assert len(offer.names) == 500
