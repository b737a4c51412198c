"""The extender as people run it, from its first list to its last answer: one process, one API server, real HTTP."""

import asyncio
import json
import os
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from gpushare.devcluster import kubeconfig
from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.devcluster.faults import plan
from gpushare.devcluster.faults.proxy import FaultProxy, Plan
from tests.support import embedded_objects, extender_process, wait
from tests.support import scripted_api as scripted
from tests.support.extender_process import Extender

CERTS = scripted.CERTS


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    """One node, two GPUs of 8000 MiB."""
    async with ApiServer(bookmark_seconds=0.2) as server:
        embedded_objects.create(server, embedded_objects.node("a", 8000, 8000))
        yield server


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "PORT", "LOG_LEVEL", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def refuse(path: str, fault: str, *, method: str = "GET") -> Plan:
    return Plan(rates={fault: 1.0}, eligible=lambda asked, where: asked == method and where.endswith(path))


def three_lines(extender: Extender) -> list[str]:
    """The error that it ended with."""
    lines = extender.logged().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("error: "))
    assert [line[:7] for line in lines[start:]] == ["error: ", "  why: ", "  try: "], lines[start:]
    return [line[7:] for line in lines[start:]]


# Reading the cluster


async def test_nothing_is_answered_until_everything_was_read(server: ApiServer, tmp_path: Path) -> None:
    made = embedded_objects.create(server, embedded_objects.pod("train", 1000))
    async with (
        FaultProxy(server.url, refuse("/pods", plan.UNAVAILABLE)) as proxy,
        Extender(proxy.write_kubeconfig(tmp_path / "kubeconfig")) as extender,
    ):
        await _listening(extender)
        await _said(extender, "/readyz", "gpushare has not read the cluster yet: pods: 503")
        assert (await extender.get("/healthz"))[0] == 200
        assert (await extender.filter(made, "a"))["Error"].startswith("gpushare has not read the cluster yet")
        assert await extender.prioritize(made, "a") == []
        assert (await extender.bind(made, "a")).startswith("gpushare has not read the cluster yet")
        proxy.plan = Plan()
        await extender.ready()
        assert (await extender.filter(made, "a"))["NodeNames"] == ["a"]
        assert await extender.bind(made, "a") == ""


async def test_a_view_that_is_cut_off_is_not_acted_on(server: ApiServer, tmp_path: Path) -> None:
    made = embedded_objects.create(server, embedded_objects.pod("train", 1000))
    port = extender_process.free_port()
    config = kubeconfig.write(tmp_path / "kubeconfig", f"http://127.0.0.1:{port}")
    settings = {"gpushare.extender.app.STALE_SECONDS": 0.3, "gpushare.kube.loop.LONGEST_DELAY": 0.2}
    async with Extender(config, settings=settings) as extender:

        async def fits() -> bool:
            return bool((await extender.filter(made, "a"))["NodeNames"] == ["a"])

        async def bound() -> bool:
            return await extender.bind(made, "a") == ""

        await _listening(extender)
        async with FaultProxy(server.url, port=port):
            await wait.eventually_asked(fits, "room on a")  # where the cores are busy, news are late in between
        await _said(extender, "/readyz", "gpushare has not heard from the API server for")
        assert (await extender.filter(made, "a"))["Error"].startswith("gpushare has not heard")
        assert (await extender.bind(made, "a")).startswith("gpushare has not heard")
        async with FaultProxy(server.url, port=port):
            await wait.eventually_asked(bound, "a binding to a")


async def test_an_api_server_that_is_only_busy_is_waited_for(server: ApiServer, tmp_path: Path) -> None:
    async with FaultProxy(server.url, Plan(rates={plan.UNAVAILABLE: 1.0})) as proxy:
        config = proxy.write_kubeconfig(tmp_path / "kubeconfig")
        settings = {"gpushare.extender.app.START_SECONDS": 0.1, "gpushare.kube.loop.LONGEST_DELAY": 0.2}
        async with Extender(config, settings=settings) as extender:
            await _listening(extender)
            await asyncio.sleep(1.0)
            proxy.plan = Plan()
            await extender.ready()


async def test_after_a_kill_the_same_is_counted_again(server: ApiServer, tmp_path: Path) -> None:
    async with extender_process.running(server, tmp_path) as extender:
        await extender_process.bound(server, extender, embedded_objects.pod("p", 3000, 2000))
        await extender_process.bound(server, extender, embedded_objects.pod("q", 4000, split=2))
        before = await extender.inspect()
        await extender.kill()
        await extender.start()
        await extender.ready()
        assert await extender.inspect() == before == {"a": [(7000, 8000), (2000, 8000)]}


# Ending


async def test_sigterm_lets_a_binding_finish_and_answers_it(server: ApiServer, tmp_path: Path) -> None:
    slow = Plan(rates={plan.LATENCY: 1.0}, latency=(1.0, 1.0), eligible=lambda method, path: path.endswith("/binding"))
    async with (
        FaultProxy(server.url, slow) as proxy,
        Extender(proxy.write_kubeconfig(tmp_path / "kubeconfig")) as extender,
    ):
        await extender.ready()
        made = embedded_objects.create(server, embedded_objects.pod("train", 5000))
        binding = asyncio.create_task(extender.bind(made, "a"))
        await wait.eventually(lambda: proxy.counts[plan.LATENCY], "the write")
        extender.signal()
        assert await binding == ""
        assert await extender.ended(5.0) == 0
    assert (embedded_objects.find(server, "train") or {})["spec"]["nodeName"] == "a"


async def test_sigterm_ends_within_five_seconds_though_the_api_server_hangs(server: ApiServer, tmp_path: Path) -> None:
    dead = Plan(rates={plan.LATENCY: 1.0}, latency=(60, 60), eligible=lambda method, path: path.endswith("/binding"))
    async with (
        FaultProxy(server.url, dead) as proxy,
        Extender(proxy.write_kubeconfig(tmp_path / "kubeconfig")) as extender,
    ):
        await extender.ready()
        made = embedded_objects.create(server, embedded_objects.pod("train", 5000))
        binding = asyncio.create_task(extender.bind(made, "a"))
        await wait.eventually(lambda: proxy.counts[plan.LATENCY], "the write")
        extender.signal()
        assert await extender.ended(5.0) == 0
        assert await binding == "binding train to a is still in progress"
        assert "Traceback" not in extender.logged()
        assert '"level": "error"' not in extender.logged()


def _slow_events(seconds: float) -> Plan:
    def is_event(method: str, path: str) -> bool:
        return method == "POST" and path.endswith("/events")

    return Plan(rates={plan.LATENCY: 1.0}, latency=(seconds, seconds), eligible=is_event)


async def test_events_that_wait_to_be_sent_are_sent_after_sigterm(server: ApiServer, tmp_path: Path) -> None:
    async with (
        FaultProxy(server.url, _slow_events(0.2)) as proxy,
        Extender(proxy.write_kubeconfig(tmp_path / "kubeconfig")) as extender,
    ):
        await extender.ready()
        for name in ("first", "second"):  # they are sent one after the other
            assert await extender.bind(embedded_objects.create(server, embedded_objects.pod(name, 1000)), "a") == ""
        extender.signal()
        assert await extender.ended(5.0) == 0
    assert {name for _, reason, name, _ in embedded_objects.events(server) if reason == "GPUAssigned"} == {
        "first",
        "second",
    }


async def test_events_that_cannot_be_sent_do_not_hold_up_the_end(server: ApiServer, tmp_path: Path) -> None:
    async with (
        FaultProxy(server.url, _slow_events(60)) as proxy,
        Extender(proxy.write_kubeconfig(tmp_path / "kubeconfig")) as extender,
    ):
        await extender.ready()
        assert await extender.bind(embedded_objects.create(server, embedded_objects.pod("train", 1000)), "a") == ""
        await wait.eventually(lambda: proxy.counts[plan.LATENCY], "the event")
        extender.signal()
        assert await extender.ended(3.0) == 0  # one second for the event, and what a busy machine takes
        assert "Traceback" not in extender.logged()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
async def test_the_exit_code_tells_how_it_was_ended(
    server: ApiServer, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    async with extender_process.running(server, tmp_path) as extender:
        extender.signal(number)
        assert await extender.ended(5.0) == code


async def test_sigterm_is_heard_before_the_cluster_was_read(tmp_path: Path) -> None:
    config = kubeconfig.write(tmp_path / "kubeconfig", f"http://127.0.0.1:{extender_process.free_port()}")
    async with Extender(config) as extender:
        await _listening(extender)
        extender.signal()
        assert await extender.ended(5.0) == 0


# Starting


async def test_the_environment_wins_over_flags(server: ApiServer, tmp_path: Path) -> None:
    port, config = extender_process.free_port(), server.write_kubeconfig(tmp_path / "kubeconfig")
    environ = {"LOG_LEVEL": "ERROR", "PORT": str(port), "KUBECONFIG": str(config)}
    async with Extender(None, "--log-level", "debug", folder=tmp_path, environ=environ) as extender:
        unused, extender.port = extender.port, port
        await extender.ready()
        assert extender.logged() == ""
        extender.port = unused
        with pytest.raises(aiohttp.ClientConnectionError):
            await extender.get("/version")


async def test_it_listens_at_several_ports(server: ApiServer, tmp_path: Path) -> None:
    second = extender_process.free_port()
    config = server.write_kubeconfig(tmp_path / "kubeconfig")
    async with Extender(config, ports=[second]) as extender:
        await extender.ready()
        extender.port = second
        assert (await extender.get("/version"))[0] == 200


async def test_with_tls_only_clients_with_a_certificate_are_answered(server: ApiServer, tmp_path: Path) -> None:
    files = ["--tls-cert", "server.crt", "--tls-key", "server.key", "--client-ca", "ca.crt"]
    args = [word if word.startswith("--") else str(CERTS / word) for word in files]
    config = server.write_kubeconfig(tmp_path / "kubeconfig")
    async with Extender(config, *args) as extender, aiohttp.ClientSession() as session:
        await _listening(extender)
        url = f"https://127.0.0.1:{extender.port}/version"
        known = ssl.create_default_context(cafile=CERTS / "ca.crt")
        known.load_cert_chain(CERTS / "client.crt", CERTS / "client.key")
        async with session.get(url, ssl=known) as answer:
            assert answer.status == 200
        stranger = ssl.create_default_context(cafile=CERTS / "ca.crt")
        with pytest.raises(aiohttp.ClientError):
            await session.get(url, ssl=stranger)
        expired = ssl.create_default_context(cafile=CERTS / "ca.crt")
        expired.load_cert_chain(CERTS / "expired.crt", CERTS / "expired.key")
        with pytest.raises(aiohttp.ClientError):
            await session.get(url, ssl=expired)
        with pytest.raises(aiohttp.ClientError):
            await session.get(url.replace("https", "http"))
        async with session.get(url, ssl=known) as answer:
            assert answer.status == 200


async def test_a_port_in_use_is_told_with_who_uses_it(server: ApiServer, tmp_path: Path) -> None:
    config = server.write_kubeconfig(tmp_path / "kubeconfig")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        async with Extender(config, ports=[port]) as extender:
            assert await extender.ended() == 2
    what, why, way = three_lines(extender)
    assert what == f"port {port} on 127.0.0.1 is in use"
    assert why.startswith(f"by process {os.getpid()} (") or sys.platform != "linux"
    assert way == "stop that one, or --port N (and change urlPrefix in the scheduler's configuration)"


async def test_an_address_that_is_not_ours_is_told(server: ApiServer, tmp_path: Path) -> None:
    config = server.write_kubeconfig(tmp_path / "kubeconfig")
    for address in ("203.0.113.1", "no.such.host.invalid"):
        async with Extender(config, "--listen", address) as extender:
            assert await extender.ended() == 2
        assert three_lines(extender)[0] == f"cannot listen on {address}, port {extender.port}"


async def test_without_a_kubeconfig_there_is_no_cluster_to_ask(tmp_path: Path) -> None:
    async with Extender(tmp_path / "missing") as extender:
        assert await extender.ended() == 3
    assert three_lines(extender)[0] == "no kubeconfig found"


SOON = {"gpushare.extender.app.START_SECONDS": 0.5, "gpushare.kube.loop.LONGEST_DELAY": 0.1}


async def test_an_api_server_that_is_not_there_ends_it_after_a_while(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{extender_process.free_port()}"
    async with Extender(kubeconfig.write(tmp_path / "kubeconfig", url), settings=SOON) as extender:
        await _listening(extender)
        assert (await extender.get("/readyz"))[0] == 503
        assert await extender.ended() == 3
    what, why, way = three_lines(extender)
    assert what == f"the API server does not answer: {url}"
    assert why == 'connection refused (context "devcluster" of ~/kubeconfig)'
    assert way.startswith("kubectl --context devcluster get --raw /readyz")


async def test_credentials_that_are_not_accepted_end_it_after_a_while(tmp_path: Path) -> None:
    async with ApiServer(token="secret") as server:
        config = kubeconfig.write(tmp_path / "kubeconfig", server.url, "wrong")
        async with Extender(config, settings=SOON) as extender:
            assert await extender.ended() == 3
    what, why, _ = three_lines(extender)
    assert what == f"the API server does not accept our credentials: {server.url}"
    assert why.endswith("(401)")
    assert "wrong" not in extender.logged()


async def test_a_right_that_is_missing_ends_it_after_a_while_though_others_are_there(tmp_path: Path) -> None:
    forbidden = (
        'configmaps is forbidden: User "dev" cannot list resource "configmaps" in API group "" '
        'in the namespace "kube-system"'
    )
    async with scripted.serve() as server:
        for path in ("/api/v1/nodes", "/api/v1/pods"):
            server.on(f"GET {path}", scripted.page([], "1"))
            server.on(f"WATCH {path}", scripted.watch(then="hang"))
        server.on("GET /api/v1/namespaces/kube-system/configmaps", scripted.refuse(403, "Forbidden", forbidden))
        config = kubeconfig.write(tmp_path / "kubeconfig", server.url)
        async with Extender(config, settings=SOON) as extender:
            assert await extender.ended() == 3
    assert three_lines(extender) == [
        "not allowed: list configmaps in namespace kube-system",
        'user "dev" lacks verb list on configmaps, core group, in namespace kube-system (403)',
        "kubectl create clusterrolebinding gpushare-view-dev --clusterrole=gpushare-view --user=dev",
    ]


async def test_what_is_no_api_server_is_told_so(tmp_path: Path) -> None:
    async with scripted.serve() as server:
        config = kubeconfig.write(tmp_path / "kubeconfig", server.url)
        for path in ("/api/v1/nodes", "/api/v1/pods", "/api/v1/namespaces/kube-system/configmaps"):
            server.on(f"GET {path}", scripted.answer("hello"))
        async with Extender(config, settings=SOON) as extender:
            assert await extender.ended() == 3
    assert three_lines(extender)[0] == f"this is not a Kubernetes API server: {server.url}"


# Logs


async def test_every_line_of_the_log_is_json_and_holds_no_spec(server: ApiServer, tmp_path: Path) -> None:
    async with extender_process.running(server, tmp_path) as extender:
        await extender_process.bound(server, extender, embedded_objects.pod("train", 5000))
        await extender.post("filter", {"nonsense": True})
        extender.signal()
        await extender.ended(5.0)
        lines = [json.loads(line) for line in extender.logged().splitlines()]
    said = [line["msg"] for line in lines]
    assert said == ["listening", "synced", "bound", "stopping"]
    assert {"ts", "level", "msg", "logger"} <= lines[0].keys()
    assert "busybox" not in extender.logged()


async def _listening(extender: Extender) -> None:
    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", extender.port)) == 0

    await wait.eventually(listens, "an extender that listens")


async def _said(extender: Extender, path: str, words: str) -> None:
    async def says() -> bool:
        status, text = await extender.get(path)
        return words in text and status == 503

    await wait.eventually_asked(says, f"{words} from {path}", every=0.02)
