"""`gpushare why --extender URL`: asking a running one, over real HTTP, and whatever may be wrong with it."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
import pytest

from gpushare.core.explain import verdict
from gpushare.core.facts import objects, request
from gpushare.core.facts.model import PodFacts
from gpushare.ctl.why.extender_client import Extender
from gpushare.obs.errors import UserError
from gpushare.view import snapshot
from tests.ctl.why.cluster import NOW, Cluster, ask, world

LLM = {"name": "llm", "containers": {"main": 7000}}
NB3 = {"name": "nb-3", "containers": {"main": 3000}}
CONTAINER = "{name: main, resources: {limits: {aliyun.com/gpu-mem: 3000}}}"
POD = f"{{kind: Pod, metadata: {{name: p}}, spec: {{containers: [{CONTAINER}]}}}}"

Answer = Callable[[str, bytes], tuple[int, bytes]]


class Quiet(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who asked did not wait for the answer, as the test wants it."""


DRAFT = (
    "{kind: Pod, metadata: {name: p}, spec: {containers: [{name: a, resources: {limits: {aliyun.com/gpu-mem: N}}}]}}"
)


class Server:
    """Answers like an extender, from `answer`."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answer: Answer = lambda path, body: (404, b'{"version": 1, "error": "no pod"}')
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, answer = outer.answer(self.path, body)
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def do_POST(self) -> None:
                self.do_GET()

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing on stderr."""

        self._http = Quiet(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def knows(self, cluster: Cluster) -> "Server":
        """What an extender of that cluster answers."""
        ledger, pods = snapshot.read(cluster, NOW).ledger, cluster.pods

        def answer(path: str, body: bytes) -> tuple[int, bytes]:
            made = body or msgspec.json.encode(pods["default", path.rpartition("pod=")[2]])
            facts = request.facts(msgspec.json.decode(made, type=objects.Pod), None)
            return 200, msgspec.json.encode(verdict.explain(ledger, facts))

        self.answer = answer
        return self

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def error(cluster: Cluster, pod: str = "llm", **options: Any) -> UserError:
    with pytest.raises(UserError) as raised:
        ask(cluster, pod, **options)
    return raised.value


@pytest.mark.parametrize("name", ["llm", "nb-3", "web-1", "train", "solo"])
@pytest.mark.parametrize("output", ["", "wide"])
def test_it_says_what_is_worked_out_here(server: Server, name: str, output: str) -> None:
    cluster = world({"pods": [LLM, NB3]})
    told = ask(cluster, name, output=output, extender=server.knows(cluster).url)
    assert server.asked == [f"/gpushare-scheduler/explain?namespace=default&pod={name}"]
    here = ask(cluster, name, output=output)
    assert (told.out, told.err, told.code) == (here.out, here.err, here.code)


def test_kube_schedulers_part_is_added_here(server: Server) -> None:
    taints = {"gpu-c": {"taints": [{"key": "dedicated", "value": "train", "effect": "NoSchedule"}]}}
    cluster = world({"pods": [LLM, NB3], "nodes": taints})
    url = server.knows(cluster).url
    assert ask(cluster, "nb-3", extender=url).out == ask(cluster, "nb-3").out
    assert "it asked 6536" not in ask(cluster, "llm", extender=url).out


def test_where_the_chosen_node_is_barred_another_that_fits_is_named(server: Server) -> None:
    cluster = Cluster({"a": {"gpus": [3000], "cordoned": True}, "b": {"gpus": [8000]}}, [NB3])
    answer = ask(cluster, "nb-3", extender=server.knows(cluster).url)
    assert answer.out.startswith("nb-3 is Pending, but it fits right now: b")


def test_a_pod_in_a_file_is_sent_to_it(server: Server) -> None:
    cluster = world()
    answer = ask(cluster, filename="-", stdin=POD, extender=server.knows(cluster).url)
    assert answer.out == "p (stdin) would fit now: gpu-c GPU 1, 6536 of 40536 MiB free, 3536 left after it.\n"


def test_it_cannot_place_several(server: Server) -> None:
    said = error(world(), "", filename="-", stdin=f"{POD}\n---\n{POD}", extender=server.url)
    assert (said.what, said.code) == ("--extender cannot place what is in stdin", 2)
    assert server.asked == []


def test_who_may_not_read_other_namespaces_learns_no_names_from_it(server: Server) -> None:
    strangers = [{"name": f"secret-{i}", "namespace": "other", "node": "gpu-c", "gpu": 1, "containers": {"main": 100}}
                 for i in range(2)]  # fmt: skip
    cluster = world({"pods": [LLM, *strangers]})
    url = server.knows(cluster).url
    cluster.hidden = ("/api/v1/pods",)
    for name in ("llm", "web-1", "batch-x7k2p", "train"):
        for output in ("", "wide", "json", "yaml"):
            answer = ask(cluster, name, output=output, extender=url)
            assert "secret" not in answer.out + answer.err
            assert answer.err.startswith("note: not allowed: list pods in all namespaces\n")
    out = ask(cluster, "llm", extender=url).out
    assert "- one of 15 pods on gpu-c GPU 1 ended: batch-x7k2p (1000 MiB) and 14 more" in out
    assert "gpu-c  GPU 1: 6336 of 40536 MiB free, 664 short     not looked at" in out


def test_ways_that_name_only_strangers_give_their_number(server: Server) -> None:
    place = {"namespace": "other", "node": "a", "gpu": 0}
    strangers = {"name": "secret", "times": 2, "containers": {"main": 4000}, **place}
    cluster = Cluster({"a": {"gpus": [8000]}}, [strangers, {**LLM, "priority": 5, "containers": {"main": 4000}}])
    url = server.knows(cluster).url
    cluster.hidden = ("/api/v1/pods",)
    out = ask(cluster, "llm", extender=url).out
    assert "- one of 2 pods on a GPU 0 ended\n" in out
    assert "- a lower priority gave way: 1 pod on a GPU 0 can be evicted\n" in out


def test_another_version_is_said_to_be_another(server: Server) -> None:
    server.answer = lambda path, body: (200, b'{"version": 2, "what": "ever"}')
    said = error(world({"pods": [LLM]}), extender=server.url)
    assert said.what == f"the extender at {server.url} speaks explain version 2"
    assert said.why == "this gpushare 0.1.0 knows version 1"
    assert said.way == "upgrade this gpushare, or leave out --extender to compute it here"
    assert said.code == 3


def test_a_pod_it_does_not_know(server: Server) -> None:
    said = error(world({"pods": [LLM]}), extender=server.url)
    assert (said.what, said.code) == ("the extender does not know pod default/llm", 3)


ANSWERS = {
    b"": "no gpushare extender",
    b"<html>": "no gpushare extender",
    b"[]": "no gpushare extender",
    b"{}": "no gpushare extender",
    b'{"version": "1"}': "no gpushare extender",
    b'{"version": 1}': "no gpushare extender",
    b'{"version": 1, "verdict": "refused"}': "no gpushare extender",
    b"\xff\xfe": "no gpushare extender",
    b'{"version": 1, "error": "not synced"}': "the extender at",
}


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("body", ANSWERS)
def test_nonsense_is_named(server: Server, body: bytes, status: int) -> None:
    server.answer = lambda path, asked: (status, body)
    said = error(world({"pods": [LLM]}), extender=server.url)
    assert said.what.startswith(ANSWERS[body])
    assert (said.way, said.code) == ("leave out --extender to compute it here", 3)


@pytest.mark.parametrize("url", ["12345", "127.0.0.1:12345", "file:///etc/passwd", "http://", "http://[", "http://a:b"])
def test_what_is_no_address_is_bad_input(url: str) -> None:
    cluster = world({"pods": [LLM]})
    said = error(cluster, extender=url)
    assert (said.what, said.code) == (f'--extender: "{url}" is no address', 2)
    assert cluster.asked == []


def test_nobody_there(server: Server) -> None:
    server.close()
    said = error(world({"pods": [LLM]}), extender=server.url)
    assert (said.what, said.why) == (f"the extender at {server.url} does not answer", "connection refused")
    assert said.code == 3


def test_one_that_does_not_answer_is_waited_for_so_long_and_no_longer(server: Server) -> None:
    let_go = threading.Event()
    server.answer = lambda path, body: (200, str(let_go.wait(60)).encode())
    told: list[str] = []
    try:
        with pytest.raises(UserError) as raised:
            Extender(server.url, told.append, patience=0.01, limit=0.2).explain("default", "llm")
    finally:
        let_go.set()
    assert raised.value.why == "no answer within 0.2 s"
    assert told == [f"waiting for the extender at {server.url}"]


def test_it_is_not_asked_about_what_nodes_sell_by_count(server: Server) -> None:
    draft = DRAFT.replace("aliyun.com/gpu-mem: N", "nvidia.com/gpu: 1")
    pods = [{"name": "cuda", "counted": {"nvidia.com/gpu": 9}}]
    cluster = world({"nodes": {"gpu-e": {"counted": {"nvidia.com/gpu": [8, 0]}}}, "pods": pods})
    assert ask(cluster, "cuda", extender=server.url).out.startswith("cuda can never run here: no node has as many as 9")
    of_file = ask(cluster, filename="-", stdin=draft, extender=server.url)
    assert of_file.out == "p (stdin) would fit now: gpu-e, 8 of 8 nvidia.com/gpu free.\n"
    assert server.asked == []


def test_what_the_pod_alone_decides_is_not_asked(server: Server) -> None:
    cluster = world({"pods": [{"name": "probe", "containers": {"main": "4Gi"}}]})
    assert ask(cluster, "probe", extender=server.url).code == 1
    assert server.asked == []


def test_what_only_its_memory_holds_is_taken_into_account(server: Server) -> None:
    """A pod that is about to be bound takes room that the API does not show yet."""
    cluster = Cluster({"a": {"gpus": [8000]}}, [LLM, {"name": "other", "containers": {"main": 6000}}])
    ledger = snapshot.read(cluster, NOW).ledger
    llm, other = (facts_of(cluster, name) for name in ("llm", "other"))
    ledger.assume(other, "a", "binpack", NOW)
    server.answer = lambda path, body: (200, msgspec.json.encode(verdict.explain(ledger, llm)))
    assert "GPU 0: 2000 of 8000 MiB free, 5000 short" in ask(cluster, "llm", extender=server.url).out
    assert ask(cluster, "llm").code == 0


def facts_of(cluster: Cluster, name: str) -> PodFacts:
    made = msgspec.json.encode(cluster.pods["default", name])
    return request.facts(msgspec.json.decode(made, type=objects.Pod), None)


@pytest.mark.parametrize("labels", [{}, {"gpushare.io/pin": "direct"}])
def test_of_a_file_it_is_told_the_pod_as_it_will_be_admitted(server: Server, labels: dict[str, str]) -> None:
    """With both pins in one cluster the extender and what is worked out here say the same."""
    both = {"m": {"gpus": [11441], "pin": "plugin"}, "n": {"gpus": [40536], "pin": "direct"}}
    for amount in (3000, 30000, 50000):
        cluster = Cluster(both, [])
        cluster.policy, cluster.namespaces = {"gpushare.io/pin": "direct"}, {"default": labels}
        for cluster.hidden in ((), ("POST",), ("POST", "/apis")):
            text = DRAFT.replace("N", str(amount))
            told = ask(cluster, filename="-", stdin=text, extender=server.knows(cluster).url)
            here = ask(cluster, filename="-", stdin=text)
            assert (told.out, told.err, told.code) == (here.out, here.err, here.code)
            pinned = amount < 50000 and labels != {} and "/apis" not in cluster.hidden
            assert ("would fit now: n GPU 0" in told.out) is pinned
