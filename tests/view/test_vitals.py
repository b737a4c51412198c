"""What GPUs do is read where it can be; else it is unknown, and nothing else is different."""

import json
from typing import Any

import pytest

from gpushare.obs.errors import CLUSTER_NOT_ASKED, UserError
from gpushare.view import vitals
from gpushare.view.source import Forbidden, NotFound

GOOD = {"metadata": {"name": "a"}, "status": {"sampledAt": "then", "gpus": [{"index": 1, "usedMiB": 70}]}}


class Answering:
    """A source with one answer."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.asked = answer, list[str]()

    def get(self, path: str) -> bytes:
        self.asked.append(path)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer if isinstance(self.answer, bytes) else json.dumps(self.answer).encode()


def test_all_are_read_with_one_request() -> None:
    source = Answering({"items": [GOOD, {**GOOD, "metadata": {"name": "b"}}]})
    found = vitals.Reading(source).found()
    assert source.asked == ["/apis/gpushare.io/v1alpha1/gpunodes?resourceVersion=0"]
    assert {name: (status.gpus or ())[0].used_mib for name, status in found.items()} == {"a": 70, "b": 70}


def test_one_is_read_by_its_name() -> None:
    source = Answering(GOOD)
    assert list(vitals.Reading(source, "a/b").found()) == ["a"]
    assert source.asked == ["/apis/gpushare.io/v1alpha1/gpunodes/a%2Fb"]


@pytest.mark.parametrize("kind", [NotFound, Forbidden, UserError])
@pytest.mark.parametrize("node", ["", "a"])
def test_what_cannot_be_read_is_unknown(kind: type[UserError], node: str) -> None:
    assert vitals.Reading(Answering(kind("what", "why", "way", CLUSTER_NOT_ASKED)), node).found() == {}


@pytest.mark.parametrize("answer", [b"", b"no", b"[]", b'{"items": 3}', b'{"items": null}', b"\xff", {"items": []}])
@pytest.mark.parametrize("node", ["", "a"])
def test_an_answer_that_is_none_is_unknown(answer: Any, node: str) -> None:
    assert vitals.Reading(Answering(answer), node).found() == {}


@pytest.mark.parametrize(
    "bad",
    [
        3,
        {"metadata": {"name": 3}},
        {"metadata": {"name": "x"}, "status": []},
        {"metadata": {"name": "x"}, "status": {"gpus": "all"}},
        {"metadata": {"name": "x"}, "status": {"gpus": [{"usedMiB": "much"}]}},
        {"metadata": {"name": "x"}, "status": {"gpus": [{"containers": [{"usedMiB": {}}]}]}},
        {"status": {"gpus": []}},
    ],
)
def test_one_that_is_not_as_it_should_be_hides_no_other(bad: Any) -> None:
    assert list(vitals.Reading(Answering({"items": [bad, GOOD]})).found()) == ["a"]
