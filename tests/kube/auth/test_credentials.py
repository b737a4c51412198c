"""Credentials that a program prints."""

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gpushare.kube import client
from gpushare.kube.auth import credentials, login
from gpushare.kube.auth.configfile import Cluster, Exec, ExecVariable
from gpushare.kube.errors import ApiError, NoAccess
from tests.support.scripted_api import CERTS, FakeTime, answer, refuse, serve

V1, V1BETA1 = "client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"


def says(**status: Any) -> str:
    return f"cat <<'END'\n{json.dumps({'kind': 'ExecCredential', 'apiVersion': V1, 'status': status})}\nEND"


class Program:
    """A shell script that counts its runs."""

    def __init__(self, folder: Path, text: str) -> None:
        self.path = folder / "login"
        self.runs_file = folder / "runs"
        self.write(text)

    def write(self, text: str) -> None:
        self.path.write_text(f"#!/bin/sh\necho run >> {self.runs_file}\n{text}\n")
        self.path.chmod(0o755)

    def runs(self) -> int:
        return len(self.runs_file.read_text().splitlines()) if self.runs_file.exists() else 0


def plugin(
    folder: Path,
    time: FakeTime | None = None,
    limit: float = 5.0,
    command: str = "./login",
    args: Sequence[str] = (),
    version: str = V1,
    **more: Any,
) -> credentials.ExecPlugin:
    spec = Exec(command=command, api_version=version, args=list(args) or None, **more)
    clock = (time or FakeTime()).clock
    return credentials.ExecPlugin(
        spec, Cluster(server="https://c:1"), folder, {"PATH": os.environ["PATH"]}, clock, limit
    )


@pytest.mark.parametrize("version", [V1, V1BETA1])
async def test_a_token_is_kept_until_it_expires(tmp_path: Path, version: str) -> None:
    time = FakeTime(now=1_700_000_000)
    program = Program(tmp_path, says(token="one", expirationTimestamp="2023-11-14T22:14:00Z"))  # 40 s later
    credential = plugin(tmp_path, time, version=version)
    assert (await credential.current()).token == "one"
    assert (await credential.current()).token == "one"
    assert program.runs() == 1
    program.write(says(token="two"))
    time.now += 40
    assert (await credential.current()).token == "two"
    time.now += 1e9
    assert (await credential.current()).token == "two"
    assert program.runs() == 2


async def test_many_requests_at_once_run_one_program(tmp_path: Path) -> None:
    program = Program(tmp_path, says(token="one"))
    credential = plugin(tmp_path)
    secrets = await asyncio.gather(*(credential.current() for _ in range(20)))
    assert {secret.token for secret in secrets} == {"one"}
    assert program.runs() == 1


async def test_a_refused_token_is_asked_for_anew_once_for_all_requests(tmp_path: Path) -> None:
    program = Program(tmp_path, says(token="old"))
    async with serve() as server:
        access = login.Access(server.url, credential=plugin(tmp_path))
        assert await access.headers() == {"Authorization": "Bearer old"}
        program.write(says(token="new"))
        server.on("GET /version", *[refuse(401)] * 8, answer({"major": "1", "minor": "36"}))
        async with client.connect(access) as api:
            await asyncio.gather(*(api.version() for _ in range(8)))
        assert program.runs() == 2
        assert {asked.headers["Authorization"] for asked in server.asked[8:]} == {"Bearer new"}


async def test_a_token_refused_twice_is_an_answer(tmp_path: Path) -> None:
    program = Program(tmp_path, says(token="bad"))
    async with serve() as server:
        server.on("GET /version", refuse(401, "Unauthorized"))
        async with client.connect(login.Access(server.url, credential=plugin(tmp_path))) as api:
            with pytest.raises(ApiError) as caught:
                await api.version()
        assert caught.value.status == 401
        assert (len(server.asked), program.runs()) == (2, 2)


async def test_a_client_certificate_from_a_program_is_shown(tmp_path: Path) -> None:
    pair = {
        "clientCertificateData": (CERTS / "client.crt").read_text(),
        "clientKeyData": (CERTS / "client.key").read_text(),
    }
    Program(tmp_path, says(**pair))
    async with serve(tls=True, client_certificates=True) as server:
        server.on("GET /version", answer({"major": "1", "minor": "36"}))
        access = login.Access(server.url, ca=(CERTS / "ca.crt").read_bytes(), credential=plugin(tmp_path))
        async with client.connect(access) as api:
            assert await api.version() == (1, 36)


async def test_the_program_gets_its_arguments_its_environment_and_no_terminal(tmp_path: Path) -> None:
    Program(tmp_path, 'printf \'{"status": {"token": "%s-%s-%s"}}\' "$1" "$REGION" "$(cat)"')
    credential = plugin(tmp_path, args=["get token"], env=[ExecVariable("REGION", "eu")])
    assert (await credential.current()).token == "get token-eu-"


async def test_the_program_is_told_about_the_cluster_if_it_wants(tmp_path: Path) -> None:
    Program(tmp_path, f'printf %s "$KUBERNETES_EXEC_INFO" > {tmp_path}/info; {says(token="x")}')
    await plugin(tmp_path).current()
    assert json.loads((tmp_path / "info").read_text()) == {
        "apiVersion": V1,
        "kind": "ExecCredential",
        "spec": {"interactive": False},
    }
    await plugin(tmp_path, provide_cluster_info=True).current()
    assert json.loads((tmp_path / "info").read_text())["spec"]["cluster"] == {"server": "https://c:1"}


async def test_a_program_without_a_slash_is_found_in_the_path(tmp_path: Path) -> None:
    with pytest.raises(NoAccess, match='no credentials from "no-such-program": No such file') as caught:
        await plugin(tmp_path, command="no-such-program", install_hint="Get it:\n  at the shop").current()
    assert caught.value.way == "Get it: at the shop"
    credential = plugin(tmp_path, command="sh", args=["-c", says(token="from-path")])
    assert (await credential.current()).token == "from-path"


async def test_a_failing_program_is_quoted_with_its_last_line(tmp_path: Path) -> None:
    program = Program(tmp_path, "echo first >&2; echo 'session expired, log in again' >&2; exit 3")
    with pytest.raises(NoAccess) as caught:
        await plugin(tmp_path).current()
    assert caught.value.what == 'no credentials from "./login"'
    assert caught.value.why == "session expired, log in again"
    assert caught.value.way == "run it by hand: ./login"
    program.write("exit 3")
    with pytest.raises(NoAccess, match="it ended with exit code 3"):
        await plugin(tmp_path).current()


@pytest.mark.parametrize(
    ("prints", "why"),
    [
        ("echo hello", "what it printed is not an ExecCredential"),
        ("echo '{}'", "it printed neither a token nor a client certificate"),
        (says(clientCertificateData="x"), "it printed neither a token nor a client certificate"),
    ],
)
async def test_a_program_that_prints_something_else_is_an_error(tmp_path: Path, prints: str, why: str) -> None:
    Program(tmp_path, prints)
    with pytest.raises(NoAccess, match=why):
        await plugin(tmp_path).current()


async def test_a_program_that_does_not_end_is_ended_with_its_children(tmp_path: Path) -> None:
    Program(tmp_path, f"sleep 60 & echo $! > {tmp_path}/child; wait")
    with pytest.raises(NoAccess, match=r"it did not end within 0\.05 s"):
        await plugin(tmp_path, limit=0.05).current()
    child = tmp_path / "child"
    if child.exists() and child.read_text().strip():  # else it was ended even before
        assert not _runs(int(child.read_text()))


def _runs(pid: int) -> bool:
    """A child whose parent is gone may stay as a zombie where nobody collects it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] not in ("Z", "X")
    except OSError:
        return False


def test_another_version_of_the_protocol_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoAccess, match=r"speaks client.authentication.k8s.io/v1alpha1"):
        plugin(tmp_path, version="client.authentication.k8s.io/v1alpha1")


async def test_a_kubeconfig_with_a_program_is_loaded(tmp_path: Path) -> None:
    Program(tmp_path, says(token="from-program"))
    (tmp_path / "config").write_text(
        "current-context: a\n"
        "contexts: [{name: a, context: {cluster: c, user: u}}]\n"
        "clusters: [{name: c, cluster: {server: 'https://c:6443'}}]\n"
        f"users: [{{name: u, user: {{exec: {{apiVersion: {V1}, command: ./login, args: null, env: null,\n"
        "  interactiveMode: IfAvailable, provideClusterInfo: true}}}]\n"
    )
    access = login.load(str(tmp_path / "config"), None, dict(os.environ), tmp_path)
    assert await access.headers() == {"Authorization": "Bearer from-program"}
