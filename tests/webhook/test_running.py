"""The webhook as a process against the embedded API server: it makes its certificate, serves it, and ends in time."""

import asyncio
import base64
import contextlib
import datetime
import io
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from gpushare import cli
from gpushare.core.admission import guard
from gpushare.devcluster.apiserver.kinds import table
from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.webhook import certificates, rules
from tests.contracts.api import admission_table
from tests.support import wait

HOST = rules.host(guard.NAMESPACE)
SECONDS = 30.0
SECRETS = table.BY_RESOURCE["secrets"]
SECRET: dict[str, Any] = {"kind": "Secret", "metadata": {"name": rules.SERVICE, "namespace": guard.NAMESPACE}}


class Running:
    def __init__(self, process: asyncio.subprocess.Process, port: int, session: aiohttp.ClientSession) -> None:
        self.process, self.session, self.url = process, session, f"https://127.0.0.1:{port}"

    async def get(self, path: str) -> tuple[int, str]:
        async with self.session.get(self.url + path) as response:
            return response.status, await response.text()

    async def post(self, path: str, body: bytes) -> tuple[int, bytes, str]:
        async with self.session.post(self.url + path, data=io.BytesIO(body)) as response:
            return response.status, await response.read(), response.headers.get("Connection", "")


@contextlib.asynccontextmanager
async def started(folder: Path, *words: str) -> AsyncIterator[tuple[Running, ApiServer]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    trusting = aiohttp.TCPConnector(ssl=False)
    async with ApiServer() as server, aiohttp.ClientSession(connector=trusting) as session:
        server.load([SECRET])
        process = await asyncio.create_subprocess_exec(
            Path(sys.executable).parent / "gpushare", "webhook", "--listen", "127.0.0.1", "--port", str(port),
            "--kubeconfig", str(server.write_kubeconfig(folder / "kubeconfig")), "--log-level", "error", *words,
        )  # fmt: skip
        running = Running(process, port, session)

        async def ready() -> bool:
            assert process.returncode is None
            with contextlib.suppress(aiohttp.ClientConnectionError):
                return (await running.get("/readyz"))[0] == 200
            return False

        try:
            await wait.eventually_asked(ready, "the webhook is ready", SECONDS)
            yield running, server
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


def review(row: dict[str, object]) -> bytes:
    asked = {"uid": "u", "resource": {"resource": "pods"}, "object": admission_table.pod(row, "p")}
    return msgspec.json.encode({"request": asked})


async def test_it_makes_a_certificate_serves_it_and_answers(tmp_path: Path) -> None:
    async with started(tmp_path) as (running, server):
        stored = server.registry.get(SECRETS, guard.NAMESPACE, rules.SERVICE)
        data = {name: base64.b64decode(value) for name, value in msgspec.json.decode(stored.data)["data"].items()}
        held = certificates.read(data, HOST)
        assert held is not None
        shown = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", int(running.url.rpartition(":")[2])))
        assert shown.strip() == held.certificate.decode().strip()
        code, body, _ = await running.post(rules.MUTATE_PATH, review({"asks": {"main": {"mem": 5}}}))
        assert (code, msgspec.json.decode(body)["response"]["patchType"]) == (200, "JSONPatch")
        code, sentence, _ = await running.post(rules.GUARD_PATH, b"[]")
        assert (code, sentence[:23]) == (400, b"not an AdmissionReview:")
        large = b'{"request": {"uid": "u", "object": {"a": "' + b"x" * (3 << 20) + b'"}}}'
        assert (await running.post(rules.MUTATE_PATH, large))[0] == 200
        assert (await running.post(rules.MUTATE_PATH, large * 3))[:2] == (400, b"the body is larger than 7 MiB")
        _, page = await running.get("/metrics")
        assert 'gpushare_webhook_request_seconds_count{path="/mutate"} 2.0' in page


async def test_in_a_namespace_of_its_own_its_secret_and_its_host_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POD_NAMESPACE", "gpu-operator")
    monkeypatch.setitem(SECRET["metadata"], "namespace", "gpu-operator")
    async with started(tmp_path, "--scheduler-name", "gpu-scheduler") as (running, server):
        stored = server.registry.get(SECRETS, "gpu-operator", rules.SERVICE)
        data = {name: base64.b64decode(value) for name, value in msgspec.json.decode(stored.data)["data"].items()}
        assert certificates.read(data, rules.host("gpu-operator")) is not None
        code, body, _ = await running.post("/scheduler-name/gpu-scheduler", review({"asks": {"main": {"mem": 5}}}))
        assert (code, "patch" in msgspec.json.decode(body)["response"]) == (200, False)  # it names one itself
        code, _, _ = await running.post("/scheduler-name/other", b"{}")
        assert code == 404


async def test_told_to_end_it_says_so_and_goes_on_answering_on_connections_that_close(tmp_path: Path) -> None:
    async with started(tmp_path) as (running, _):
        running.process.send_signal(signal.SIGTERM)

        async def stopping() -> bool:
            return await running.get("/readyz") == (503, "it is being stopped\n")

        await wait.eventually_asked(stopping, "it says that it is being stopped", SECONDS)
        code, _, connection = await running.post(rules.MUTATE_PATH, review({"asks": {"main": {"mem": 5}}}))
        assert (code, connection) == (200, "close")
        running.process.send_signal(signal.SIGTERM)  # somebody is in a hurry
        assert await running.process.wait() == 0


async def test_given_files_are_read_again_when_they_change(tmp_path: Path) -> None:
    now = datetime.datetime.now(datetime.UTC)
    first, second = (certificates.current(None, now, HOST) for _ in range(2))
    files = {name: tmp_path / name for name in first.as_data()}

    def write(held: certificates.Held) -> None:
        for name, value in held.as_data().items():
            files[name].write_bytes(value)

    write(first)
    words = ("--tls-cert", str(files[certificates.CERTIFICATE]), "--tls-key", str(files[certificates.KEY]))
    async with started(tmp_path, *words) as (running, server):
        port = int(running.url.rpartition(":")[2])

        async def shows(held: certificates.Held) -> bool:
            shown = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))
            return shown.strip() == held.certificate.decode().strip()

        assert await shows(first)
        files[certificates.KEY].write_bytes(b"half a key")  # and what is broken is not used
        write(second)
        await wait.eventually_asked(lambda: shows(second), "the new certificate is shown", SECONDS)
        assert "data" not in msgspec.json.decode(server.registry.get(SECRETS, guard.NAMESPACE, rules.SERVICE).data)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--unasked", "none"], 'unknown --unasked value "none"'),
        (["--on-invalid", "off"], 'unknown --on-invalid value "off"'),
        (["--tls-cert", "x"], "half a certificate"),
        (["--ca-file", "x"], "half a certificate"),
        (["--scheduler-name", ""], '"" is not the name of a scheduler'),
        (["--scheduler-name", "../guard"], '"../guard" is not the name of a scheduler'),
        (["--port", "0"], '"0" is not a port'),
        (["--listen", ""], '"" is not an address'),
    ],
)
def test_bad_flags_are_one_clear_sentence(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["webhook", *words]) == 2
    assert sentence in capsys.readouterr().err
