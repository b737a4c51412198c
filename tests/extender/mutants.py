"""Requests that are nearly what kube-scheduler sends: valid ones of every verb, each broken in some way.

Seeded, so that a body that did harm can be made again. `broken` gives bytes; what is valid by chance is welcome too.
"""

import copy
import gzip
import json
import random
from collections.abc import Callable
from typing import Any

from tests.support import embedded_objects, extender_process

RAW = "@raw:"  # a string that stands for bytes which no encoder would write
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1.5, 1 << 53, -(1 << 63), 1 << 64, 1e308, "", "0", "-5", "4Gi", "1e9", "9" * 500,
    "\u0000", "x" * 5000, "日本", "../../etc", [], {}, [[]], [None], {"": None}, {"metadata": None},
    RAW + "1" + "0" * 400, RAW + "1e999", RAW + "-0", RAW + "NaN", RAW + "Infinity", RAW + "01", RAW + "+1",
    RAW + "'single'", RAW + r'"\ud800"', RAW + r'"\x41"', RAW + '"\x01"', RAW + "[" * 3000 + "]" * 3000,
)  # fmt: skip


def requests(asked: dict[str, Any]) -> dict[str, list[Any]]:
    """By verb, what a scheduler may send about a pod."""
    nodes = ["a", "b", "nowhere"]
    whole = {"metadata": {}, "items": [embedded_objects.node(name, 8000, 8000) for name in nodes]}
    meta = {"a": {"Pods": [{"UID": "uid-run-0"}], "NumPDBViolations": 0}, "b": {"Pods": [], "NumPDBViolations": 1}}
    full = {"a": {"Pods": [embedded_objects.pod("run-0", 4000)], "NumPDBViolations": 0}}
    questions = [extender_process.question(asked, nodes), {"Pod": asked, "Nodes": whole, "NodeNames": None}]
    victims = [
        {"Pod": asked, "NodeNameToVictims": None, "NodeNameToMetaVictims": meta},
        {"Pod": asked, "NodeNameToVictims": full, "NodeNameToMetaVictims": None},
    ]
    # A name and a uid that belong to two pods: nothing may ever be bound by this.
    bindings = [{"PodName": "other", "PodNamespace": "default", "PodUID": asked["metadata"]["uid"], "Node": "a"}]
    return {
        "filter": questions,
        "choose": questions,
        "prioritize": questions,
        "preempt": victims,
        "bind": bindings,
        "explain": [asked],
    }


def broken(dice: random.Random, request: Any) -> bytes:
    """The request with one to three things wrong in its tree, its text or its bytes."""
    tree = json.loads(json.dumps(request))
    for _ in range(dice.choice((0, 1, 1, 2, 3))):
        tree = dice.choice(IN_THE_TREE)(dice, tree)
    text = json.dumps(tree, ensure_ascii=False)
    for value in VALUES:
        if isinstance(value, str) and value.startswith(RAW):
            text = text.replace(json.dumps(value, ensure_ascii=False), value.removeprefix(RAW))
    body = text.encode("utf-8", "surrogatepass")
    return dice.choice(IN_THE_BYTES)(dice, body) if dice.random() < 0.5 else body


def _places(tree: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    left = [tree]
    while left:
        here = left.pop()
        if isinstance(here, dict | list):
            for key in list(here) if isinstance(here, dict) else range(len(here)):
                found.append((here, key))
                left.append(here[key])
    return found


def _replace(dice: random.Random, tree: Any) -> Any:
    places = _places(tree)
    value = copy.deepcopy(dice.choice(VALUES))
    if not places:
        return value
    holder, key = dice.choice(places)
    holder[key] = value
    return tree


def _remove(dice: random.Random, tree: Any) -> Any:
    places = _places(tree)
    if places:
        holder, key = dice.choice(places)
        del holder[key]
    return tree


def _respell(dice: random.Random, tree: Any) -> Any:
    places = [(holder, key) for holder, key in _places(tree) if isinstance(holder, dict)]
    if places:
        holder, key = dice.choice(places)
        spelled = dice.choice((str.lower, str.upper, str.swapcase, lambda name: name + " "))(key)
        holder[spelled] = holder.pop(key)
    return tree


def _all_lower(dice: random.Random, tree: Any) -> Any:
    return {key.lower(): value for key, value in tree.items()} if isinstance(tree, dict) else tree


def _multiply(dice: random.Random, tree: Any) -> Any:
    lists = [holder[key] for holder, key in _places(tree) if isinstance(holder[key], list)]
    if lists:
        chosen = dice.choice(lists)
        chosen *= 50
    return tree


def _wrap(dice: random.Random, tree: Any) -> Any:
    return dice.choice(([tree], {"Pod": tree}, {"args": tree}, [tree, tree]))


IN_THE_TREE: tuple[Callable[[random.Random, Any], Any], ...] = (
    _replace, _replace, _replace, _replace, _remove, _respell, _all_lower, _multiply, _wrap,
)  # fmt: skip


def _cut(dice: random.Random, body: bytes) -> bytes:
    return body[: dice.randrange(len(body) + 1)]


def _flip(dice: random.Random, body: bytes) -> bytes:
    changed = bytearray(body or b" ")
    for _ in range(dice.choice((1, 1, 5))):
        changed[dice.randrange(len(changed))] = dice.randrange(256)
    return bytes(changed)


def _insert(dice: random.Random, body: bytes) -> bytes:
    at = dice.randrange(len(body) + 1)
    junk = dice.choice((b"\xff\xfe", b"\xc3", b"\x00", b"//x\n", b",", b"}", b"\xed\xa0\x80", b'"Pod":null,', b"NaN"))
    return body[:at] + junk + body[at:]


def _twice_the_key(dice: random.Random, body: bytes) -> bytes:
    key = dice.choice((b'{"Pod": null, ', b'{"NodeNames": 5, ', b'{"PodUID": "x", ', b'{"Pod": {}, "pod": [], '))
    return key + body[1:]


IN_THE_BYTES: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    _cut, _cut, _flip, _insert, _insert, _twice_the_key,
    lambda dice, body: b"",
    lambda dice, body: b" \n\t",
    lambda dice, body: body + body,
    lambda dice, body: body + b"\x00",
    lambda dice, body: b"\xef\xbb\xbf" + body,
    lambda dice, body: body.decode("utf-8", "replace").encode("utf-16"),
    lambda dice, body: gzip.compress(body),
    lambda dice, body: b"[" * 20_000,
    lambda dice, body: b'{"Pod":' * 5_000,
    lambda dice, body: b'{"a":' * 2_000 + b"1" + b"}" * 2_000,
    lambda dice, body: json.dumps(body.decode("utf-8", "replace")).encode(),
)  # fmt: skip
