"""Reading the cluster, through a small stand-in for kubectl and directly: what works, and every way to fail."""

import asyncio
import contextlib
import json
import os
import select
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gpushare.devcluster import kubeconfig
from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.kube.errors import ApiError
from gpushare.obs.errors import UserError
from gpushare.view import snapshot
from gpushare.view.connection import Notify
from gpushare.view.direct import Direct
from gpushare.view.kubectl import Kubectl
from gpushare.view.source import Forbidden, NotFound, Source
from tests.ctl import worlds

FORBIDDEN = (
    'nodes is forbidden: User "dev" cannot list resource "nodes" in API group "" at the cluster scope: '
    'RBAC: clusterrole.rbac.authorization.k8s.io "x" not found'
)
NOT_ALLOWED = (
    "not allowed: list nodes",
    'user "dev" lacks verb list on nodes, core group, cluster-wide (403)',
    "kubectl create clusterrolebinding gpushare-view-dev --clusterrole=gpushare-view --user=dev",
)
CANNOT_ASK = "kubectl cannot ask the cluster"
SERVER = "https://10.0.0.1:6443"
AT_PROD = 'context "prod" of ~/.kube/config'
LOOK = "kubectl --context prod get --raw /readyz, or another context: --context NAME"


class Machine:
    """A home folder with a kubeconfig, and a kubectl that does what its script says."""

    def __init__(self, folder: Path) -> None:
        self.home, self.said = folder, list[str]()
        self.environ = {"HOME": str(folder), "PATH": f"{folder}/bin:/usr/bin:/bin"}
        (folder / "bin").mkdir()
        (folder / ".kube").mkdir()

    def kubectl(self, script: str) -> None:
        file = self.home / "bin" / "kubectl"
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    def kubeconfig(self, server: str = SERVER) -> None:
        config = {
            "current-context": "prod",
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "admin", "user": {"token": "t"}}],
            "contexts": [{"name": "prod", "context": {"cluster": "c", "user": "admin"}}],
        }
        (self.home / ".kube" / "config").write_text(json.dumps(config))

    def source(self, *, limit: float = 10.0, patience: float = 1.0) -> Kubectl:
        return Kubectl(None, None, self.said.append, environ=self.environ, limit=limit, patience=patience)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def failing(source: Source, path: str = "/api/v1/nodes") -> UserError:
    with pytest.raises(UserError) as caught:
        source.get(path)
    return caught.value


def three(error: UserError) -> tuple[str, str, str]:
    return error.what, error.why, error.way


# Through kubectl


def test_kubectl_is_asked_for_the_path_and_nothing_else(machine: Machine) -> None:
    machine.kubectl('echo "$@"; echo "Warning: something old" >&2')
    assert machine.source().get("/api/v1/pods?limit=5") == b"get --raw /api/v1/pods?limit=5\n"
    assert machine.said == []


def test_kubectl_is_told_the_kubeconfig_and_the_context(machine: Machine) -> None:
    machine.kubectl('echo "$@"')
    source = Kubectl("/tmp/a b", "prod", machine.said.append, environ=machine.environ)
    assert source.get("/x") == b"get --raw /x --kubeconfig /tmp/a b --context prod\n"


def test_a_snapshot_is_read_through_kubectl(machine: Machine) -> None:
    nodes, pods = worlds.documented()
    (machine.home / "nodes").write_text(json.dumps({"items": nodes}))
    (machine.home / "pods").write_text(json.dumps({"items": pods}))
    machine.kubectl(f'cat "{machine.home}/${{3##*/}}"')
    seen = snapshot.read(machine.source(), 0.0)
    assert [node.metadata.name for node in seen.nodes] == ["gpu-a", "gpu-b", "gpu-c", "gpu-d"]
    assert len(seen.pods) == 51
    assert len(seen.ledger.holdings()) == 49


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "The connection to the server 10.0.0.1:6443 was refused - did you specify the right host or port?",
            (f"the API server does not answer: {SERVER}", f"connection refused ({AT_PROD})", LOOK),
        ),
        (
            "E1116 memcache.go:265] not yet\nUnable to connect to the server: dial tcp 10.0.0.1:6443: i/o timeout",
            (f"the API server does not answer: {SERVER}", f"dial tcp 10.0.0.1:6443: i/o timeout ({AT_PROD})", LOOK),
        ),
        (
            "error: You must be logged in to the server (Unauthorized)",
            (
                f"the API server does not accept our credentials: {SERVER}",
                f'user "admin", {AT_PROD} (401)',
                "get a new kubeconfig from your admin",
            ),
        ),
        (f"Error from server (Forbidden): {FORBIDDEN}", NOT_ALLOWED),
        (
            "Error from server (ServiceUnavailable): the server is currently unable to handle the request",
            (
                f"the API server refuses: {SERVER}",
                f"503 ServiceUnavailable: the server is currently unable to handle the request ({AT_PROD})",
                LOOK,
            ),
        ),
        ("error: unknown flag: --raw", (CANNOT_ASK, "unknown flag: --raw", "kubectl get --raw /readyz")),
        ("", (CANNOT_ASK, "it says nothing", "kubectl get --raw /readyz")),
    ],
)
def test_what_kubectl_says_becomes_three_lines(machine: Machine, said: str, told: tuple[str, str, str]) -> None:
    machine.kubeconfig()
    (machine.home / "said").write_text(said + "\n")
    machine.kubectl(f'echo half an answer; cat "{machine.home}/said" >&2; exit 1')
    error = failing(machine.source())
    assert three(error) == told
    assert error.code == 3
    assert isinstance(error, Forbidden) == ("Forbidden" in said)


def test_what_is_not_there_is_told_apart(machine: Machine) -> None:
    machine.kubeconfig()
    machine.kubectl("""echo 'Error from server (NotFound): pods "x" not found' >&2; exit 1""")
    error = failing(machine.source(), "/api/v1/namespaces/default/pods/x")
    assert isinstance(error, NotFound)
    assert error.why == 'pods "x" not found'


def test_kubectl_without_a_kubeconfig_asks_localhost_and_we_say_what_is_missing(machine: Machine) -> None:
    machine.kubectl("echo 'The connection to the server localhost:8080 was refused' >&2; exit 1")
    error = failing(machine.source())
    assert error.what == "no kubeconfig found"
    assert error.why == "--kubeconfig not given, KUBECONFIG not set, ~/.kube/config missing, not inside a pod"
    assert error.code == 3


def test_a_context_that_does_not_exist_is_named(machine: Machine) -> None:
    machine.kubeconfig()
    machine.kubectl("""echo 'error: context "nope" does not exist' >&2; exit 1""")
    error = failing(Kubectl(None, "nope", machine.said.append, environ=machine.environ))
    assert three(error) == ('no context "nope" in ~/.kube/config', "contexts there: prod", "--context prod")


@pytest.mark.parametrize("there", [False, True])
def test_without_a_kubectl_that_runs_one_sentence_says_so(machine: Machine, there: bool) -> None:
    machine.environ["PATH"] = str(machine.home / "bin")
    if there:
        machine.kubectl("")
        (machine.home / "bin" / "kubectl").chmod(0o644)
    error = failing(machine.source())
    assert error.what == "kubectl cannot be started"
    assert error.why == ("Permission denied" if there else "there is none on PATH")
    assert error.code == 3


DRAFT = b'{"kind": "Pod"}'
PODS = "/api/v1/namespaces/team-a/pods"
MAY_NOT = 'pods is forbidden: User "dev" cannot create resource "pods" in API group "" in the namespace "team-a"'
NO_BY_WEBHOOK = 'admission webhook "x" denied the request: no'
DENIED = "ValidatingAdmissionPolicy 'no' with binding 'no' denied request: not today"


def test_kubectl_is_given_a_draft_and_asked_for_a_dry_run(machine: Machine) -> None:
    machine.kubectl('echo "$@"; cat')
    assert machine.source().dry_run(PODS, DRAFT) == f"create --raw {PODS}?dryRun=All -f -\n".encode() + DRAFT


@pytest.mark.parametrize(
    ("said", "status", "message"),
    [
        (f"Error from server (Forbidden): {MAY_NOT}", 403, MAY_NOT),
        ('Error from server (NotFound): namespaces "x" not found', 404, 'namespaces "x" not found'),
        ('Error from server (AlreadyExists): pods "a" already exists', 409, 'pods "a" already exists'),
        ("Error from server (BadRequest): it does not support dry run", 400, "it does not support dry run"),
        (f"Error from server: {NO_BY_WEBHOOK}", 500, NO_BY_WEBHOOK),
        (
            'Warning: spec is old\nThe Pod "a" is invalid: spec.containers[0].image: Required value',
            422,
            'Pod "a" is invalid: spec.containers[0].image: Required value',
        ),
        (
            'The Pod "a" is invalid: \n* spec.a: Required value\n* spec.b: Unsupported value: "x"',
            422,
            'Pod "a" is invalid: [spec.a: Required value, spec.b: Unsupported value: "x"]',
        ),
        (f'The pods "a" is invalid: : {DENIED}', 422, f'pods "a" is invalid: {DENIED}'),
    ],
)  # fmt: skip
def test_the_api_servers_no_to_a_draft_comes_as_it_was_said(
    machine: Machine, said: str, status: int, message: str
) -> None:
    (machine.home / "said").write_text(said + "\n")
    machine.kubectl(f'cat > /dev/null; cat "{machine.home}/said" >&2; exit 1')
    with pytest.raises(ApiError) as caught:
        machine.source().dry_run(PODS, DRAFT)
    assert (caught.value.status, caught.value.message) == (status, message)


def test_kubectl_that_reads_no_draft_and_fails_is_told_in_three_lines(machine: Machine) -> None:
    machine.kubeconfig()
    machine.kubectl("echo 'error: unknown flag: --raw' >&2; exit 1")
    with pytest.raises(UserError) as caught:
        machine.source().dry_run(PODS, b"x" * (1 << 20))
    assert three(caught.value)[:2] == (CANNOT_ASK, "unknown flag: --raw")


def test_a_slow_dry_run_is_announced_and_then_given(machine: Machine, pipe: tuple[str, int]) -> None:
    name, descriptor = pipe
    machine.kubectl(f'read go < "{name}"; cat')

    def let_go(notice: str) -> None:
        machine.said.append(notice)
        os.write(descriptor, b"go\n")

    source = Kubectl(None, None, let_go, environ=machine.environ, patience=0.01, limit=60.0)
    assert source.dry_run(PODS, DRAFT) == DRAFT
    assert machine.said == [f"waiting for the API server (POST {PODS}?dryRun=All)"]


@pytest.fixture
def pipe(machine: Machine) -> Iterator[tuple[str, int]]:
    """A named pipe and its descriptor. Opened for both directions, nobody who opens it waits for the other side."""
    name = machine.home / "pipe"
    os.mkfifo(name)
    descriptor = os.open(name, os.O_RDWR)
    yield str(name), descriptor
    os.close(descriptor)


def test_a_slow_answer_is_announced_and_then_given(machine: Machine, pipe: tuple[str, int]) -> None:
    """The stand-in answers only once the notice was given."""
    name, descriptor = pipe
    machine.kubectl(f'read go < "{name}"; echo "$go"')

    def let_go(notice: str) -> None:
        machine.said.append(notice)
        os.write(descriptor, b"done\n")

    source = Kubectl(None, None, let_go, environ=machine.environ, patience=0.01, limit=60.0)
    assert source.get("/api/v1/nodes") == b"done\n"
    assert machine.said == ["waiting for the API server (GET /api/v1/nodes)"]


def test_kubectl_that_never_answers_is_ended_even_if_its_children_hold_on(
    machine: Machine, pipe: tuple[str, int]
) -> None:
    name, descriptor = pipe
    machine.kubeconfig()
    machine.kubectl(f'sleep 600 & echo $! $$ > "{name}"; wait')
    pids: list[int] = []

    def learn(notice: str) -> None:
        assert select.select([descriptor], [], [], 60)[0], "the stand-in did not start"
        pids.extend(map(int, os.read(descriptor, 100).split()))

    error = failing(Kubectl(None, None, learn, environ=machine.environ, patience=0.01, limit=0.1))
    child, kubectl = pids
    os.kill(child, signal.SIGKILL)
    assert error.why == f"no answer within 0.1 s ({AT_PROD})"
    with pytest.raises(ProcessLookupError):
        os.kill(kubectl, 0)


# Directly


class Answers(BaseHTTPRequestHandler):
    status, body = 200, b"{}"
    go = threading.Event()

    def do_GET(self) -> None:
        if self.path == "/held":
            self.go.wait(60)
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@contextlib.contextmanager
def answering(status: int, body: object) -> Iterator[tuple[str, threading.Event]]:
    """An HTTP server that says one thing; `/held` is answered once the event is set."""
    go = threading.Event()
    handler = type("Handler", (Answers,), {"status": status, "body": json.dumps(body).encode(), "go": go})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", go
    finally:
        go.set()
        server.shutdown()
        thread.join()
        server.server_close()


def direct(
    machine: Machine, url: str, notify: Notify | None = None, *, limit: float = 10.0, patience: float = 1.0
) -> Direct:
    file = kubeconfig.write(machine.home / "kubeconfig", url, "secret")
    told = notify or machine.said.append
    return Direct(str(file), None, told, environ=machine.environ, limit=limit, patience=patience)


async def test_a_snapshot_is_read_from_an_api_server(machine: Machine) -> None:
    nodes, pods = worlds.documented()
    async with ApiServer(token="secret") as server:
        server.load([{"apiVersion": "v1", "kind": "Node", **node} for node in nodes])
        server.load([{"apiVersion": "v1", "kind": "Pod", **pod} for pod in pods])
        source = direct(machine, server.url)
        seen = await asyncio.to_thread(snapshot.read, source, 0.0)
    assert [node.metadata.name for node in seen.nodes] == ["gpu-a", "gpu-b", "gpu-c", "gpu-d"]
    assert len(seen.ledger.holdings()) == 49
    assert machine.said == []


def test_directly_a_path_keeps_its_query(machine: Machine) -> None:
    with answering(200, {"items": []}) as (url, _):
        assert direct(machine, url).get("/api/v1/pods?fieldSelector=spec.nodeName%3Da") == b'{"items": []}'


@pytest.mark.parametrize(
    ("status", "said", "kind", "what"),
    [
        (403, {"code": 403, "reason": "Forbidden", "message": FORBIDDEN}, Forbidden, NOT_ALLOWED[0]),
        (404, {"code": 404, "reason": "NotFound", "message": "gone"}, NotFound, "not there: /api/v1/nodes"),
        (401, {}, UserError, "the API server does not accept our credentials: {url}"),
        (500, {}, UserError, "the API server refuses: {url}"),
    ],
)
def test_directly_refusals_become_three_lines(
    machine: Machine, status: int, said: object, kind: type[UserError], what: str
) -> None:
    with answering(status, said) as (url, _):
        error = failing(direct(machine, url))
    assert type(error) is kind
    assert error.what == what.format(url=url)
    assert error.code == 3


def test_directly_nobody_there_is_told_at_once(machine: Machine) -> None:
    with answering(200, {}) as (url, _):
        pass
    error = failing(direct(machine, url))
    assert error.what == f"the API server does not answer: {url}"
    assert error.why.startswith('connection refused (context "devcluster" of ~/kubeconfig')


def test_directly_no_kubeconfig_is_the_same_sentence(machine: Machine) -> None:
    error = failing(Direct(None, None, machine.said.append, environ=machine.environ))
    assert (error.what, error.code) == ("no kubeconfig found", 3)


def test_directly_a_slow_answer_is_announced_and_then_given(machine: Machine) -> None:
    with answering(200, {"items": []}) as (url, go):

        def let_go(notice: str) -> None:
            machine.said.append(notice)
            go.set()

        assert direct(machine, url, let_go, patience=0.01).get("/held") == b'{"items": []}'
    assert machine.said == ["waiting for the API server (GET /held)"]


def test_directly_a_server_that_never_answers_is_given_up(machine: Machine) -> None:
    with answering(200, {}) as (url, _):
        error = failing(direct(machine, url, limit=0.3, patience=0.01), "/held")
    assert error.what == f"the API server does not answer: {url}"
    assert error.why.startswith("no answer within 0.3 s")


async def test_directly_a_dry_run_answers_the_pod_as_admitted_and_leaves_nothing(machine: Machine) -> None:
    async with ApiServer(token="secret", pin_directly=True) as server:
        source = direct(machine, server.url)
        container = {"name": "main", "image": "x", "resources": {"limits": {"aliyun.com/gpu-mem": 1}}}
        draft = json.dumps({"metadata": {"name": "a"}, "spec": {"containers": [container]}}).encode()
        path = "/api/v1/namespaces/default/pods"
        answer = json.loads(await asyncio.to_thread(source.dry_run, path, draft))
        with pytest.raises(ApiError) as caught:
            await asyncio.to_thread(source.dry_run, path.replace("default", "none"), draft)
        assert json.loads(await asyncio.to_thread(source.get, path))["items"] == []
    assert answer["spec"]["containers"][0]["env"][-1]["name"] == "NVIDIA_VISIBLE_DEVICES"
    assert (caught.value.status, caught.value.message) == (404, 'namespaces "none" not found')


def test_directly_a_dry_run_that_nobody_answers_is_told_in_three_lines(machine: Machine) -> None:
    with answering(200, {}) as (url, _):
        pass
    with pytest.raises(UserError) as caught:
        direct(machine, url).dry_run(PODS, DRAFT)
    assert caught.value.what == f"the API server does not answer: {url}"


def test_kubectl_is_asked_for_the_contexts_namespace(machine: Machine) -> None:
    machine.kubectl('echo "$@"')
    told = machine.source().namespace()
    assert told == "config view --minify -o jsonpath={..namespace}"
    machine.kubectl("true")
    assert machine.source().namespace() == "default"
