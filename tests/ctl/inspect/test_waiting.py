"""The list of pods that wait: who is in it, and in which words. The golden file `waiting` has every kind of reason."""

import io

import pytest

from gpushare.core.explain import survey, verdict
from gpushare.core.facts import request
from gpushare.core.facts.model import PodFacts, Refusal
from gpushare.core.facts.policies import POLICIES
from gpushare.core.ledger.ledger import Ledger
from gpushare.ctl.inspect import command
from gpushare.ctl.inspect.waiting import lines as waiting_lines
from gpushare.ctl.screen import Screen
from gpushare.view import snapshot
from gpushare.view.why import waiting
from gpushare.view.why.waiting import Waiting
from tests.ctl import worlds
from tests.ctl.worlds import NOW, Cluster, Json, node, pod


def waits(nodes: list[Json], pods: list[Json]) -> list[Waiting]:
    seen = snapshot.read(Cluster((nodes, pods)), NOW.timestamp())
    return waiting.pods(seen, waiting.who(seen))


def said(nodes: list[Json], one: Json, *others: Json) -> str:
    name = one["metadata"]["name"]
    return next(waiting.why(w.answer) for w in waits(nodes, [one, *others]) if w.name == name)


def test_bound_finished_and_ending_pods_do_not_wait() -> None:
    pods = [
        pod("bound", 1, on="a"),
        pod("done", 1, phase="Failed"),
        pod("ending", 1, terminating=True),
        pod("none"),
        pod("waits", 99999),
    ]
    assert [one.name for one in waits([node("a", 16276)], pods)] == ["waits"]


@pytest.mark.parametrize("world", ["documented", "waiting", "several-gpus", "both-units"])
def test_the_words_are_those_of_explain(world: str) -> None:
    """Who asks `why` reads the same sentence, under the same code."""
    seen = snapshot.read(Cluster(worlds.WORLDS[world]()), NOW.timestamp())
    listed = {(one.namespace, one.name): one.answer for one in waiting.pods(seen, waiting.who(seen))}
    assert listed
    for pod_seen in seen.pods:
        answer = listed.get((pod_seen.metadata.namespace, pod_seen.metadata.name))
        if answer is not None and answer.verdict != "fits":
            told = verdict.explain(seen.ledger, request.facts(pod_seen, None))
            assert (answer.verdict, answer.code, answer.message) == (told.verdict, told.code, told.message)


def test_a_pod_that_fits_does_not_wait_for_gpu_memory() -> None:
    assert said([node("a", 16276)], pod("p", 4000)) == "fits a now: GPU memory is not what it waits for"


def test_where_only_an_unhealthy_gpu_has_room_no_other_one_is_called_the_closest() -> None:
    nodes = [node("a", 16276, 16276, unhealthy=[0]), node("b", 10000)]
    full = pod("full", 6000, on="a", at=[[1]])
    assert said(nodes, pod("p", 11000), full) == "no healthy GPU has 11000 MiB free"


def test_an_unhealthy_gpu_with_as_much_free_is_not_the_closest() -> None:
    nodes = [node("a", 16276, 16276, unhealthy=[0])]
    there = [pod(f"on-{i}", 10000, on="a", at=[[i]]) for i in (0, 1)]
    assert said(nodes, pod("p", 7000), *there) == "no single GPU has 7000 MiB free; closest a GPU 1, 724 short"


def test_what_is_nominated_to_another_pod_is_not_free_for_this_one() -> None:
    """One that evicted others waits for what they leave; who comes later is told so, and the first is not."""
    first = pod("first", 9000, nominated="a", priority=10)
    nodes, later = [node("a", 16276)], pod("later", 9000)
    assert said(nodes, later, first) == "no single GPU has 9000 MiB free; closest a GPU 0, 1724 short"
    assert said(nodes, first, later).startswith("fits a now")


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The pods whose reason was worked out."""
    names: list[str] = []
    original = survey.survey

    def counted(ledger: Ledger, pod: PodFacts) -> list[tuple[str, Refusal | None]]:
        names.append(pod.name)
        return original(ledger, pod)

    monkeypatch.setattr(survey, "survey", counted)
    return names


def test_a_terminal_shows_ten_pods_and_only_their_reasons_are_worked_out(looked: list[str]) -> None:
    world = [node("a", 16276)], [pod(f"p-{i:02}", 20000 + i) for i in range(30)]
    for options, width, shown in (
        (command.Options(), None, 0),
        (command.Options(), 200, 10),
        (command.Options(output="wide"), 200, 30),
        (command.Options(output="wide"), None, 30),
        (command.Options(output="json"), None, 30),
    ):
        looked.clear()
        out = io.StringIO()
        command.run(options, Cluster(world), Screen(out, io.StringIO(), width=width))
        assert looked == [f"p-{i:02}" for i in range(shown)]
        assert out.getvalue().count("no GPU is as large as") == shown
        assert ("Waiting for GPU memory: 30 pods" in out.getvalue()) == (shown > 0 and options.output != "json")
        assert ("and 20 more pods: -o wide" in out.getvalue()) == (shown == 10)


def test_equal_requests_are_looked_at_once(looked: list[str]) -> None:
    assert len(waits([node("a", 16276)], [pod(f"p-{i}", 20000 + i % 2) for i in range(20)])) == 20
    assert looked == ["p-0", "p-1"]


def test_what_to_write_is_said_in_the_unit_the_pod_names() -> None:
    one = pod("p", "4Gi", notes={"gpushare.io/memory-unit": "GiB"})
    assert said([node("a", 16276)], one) == "aliyun.com/gpu-mem counts GiB, not bytes; for 4Gi write 4"


def test_a_monstrous_amount_is_cut() -> None:
    (one,) = waits([node("a", 16276)], [pod("p", "1" * 60)])
    assert one.answer.asks == "1" * 19 + "…"


def test_what_a_tenant_wrote_cannot_move_the_cursor() -> None:
    one = pod("p", 1000, notes={"gpushare.io/policy": "\x1b[2J\nroot#"})
    assert said([node("a", 16276)], one) == f'gpushare.io/policy is not {" or ".join(POLICIES)}; it says "?[2J?root#"'


def test_a_long_list_says_how_many_it_leaves_out() -> None:
    many = waits([node("a", 16276)], [pod(f"p-{i}", 20000) for i in range(5)])
    lines = waiting_lines(many[:3], NOW.timestamp(), count=5)
    assert lines[0] == "Waiting for GPU memory: 5 pods"
    assert lines[-1] == "and 2 more pods: -o wide"
    assert len(lines) == 1 + 1 + 3 + 1


def test_nobody_waits_and_nothing_is_said() -> None:
    assert waiting_lines([], NOW.timestamp(), count=0) == []
