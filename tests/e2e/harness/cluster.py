"""A real control plane in a network of its own: etcd, kube-apiserver, kube-controller-manager, and as many
kube-schedulers and extenders as a test starts. Nodes are objects that a test creates; `kubelet` has a real node.

There is one for all tests, or one for each lane. Everything listens on loopback, authorization is RBAC, and every
request is in the audit log. All files are in `.build`: those of programs in `e2e`, logs in `log/e2e`, with the number
of the lane behind the name.
"""

import asyncio
import base64
import contextlib
import fcntl
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp

from tests.e2e.harness import audit, binaries, network, processes, shipped, versions
from tests.e2e.harness.processes import Process, Processes
from tests.support import wait

ROOT = Path(__file__).resolve().parents[3]
URL = "https://127.0.0.1:6443"
ETCD = "http://127.0.0.1:2379"
FIRST_SCHEDULER_PORT = 10259
READY_SECONDS = 60.0
MOVED_ON = 2000  # revisions; more than a test makes
TOKEN_SECONDS = 24 * 3600
# user name: token. Kubernetes' own components have the rights of its built-in roles.
ADMIN, CONTROLLERS, SCHEDULER = "admin", "system:kube-controller-manager", "system:kube-scheduler"
NODE = "real"  # the only node with a kubelet
KUBELET = f"system:node:{NODE}"
GROUPS = {ADMIN: "system:masters", KUBELET: "system:nodes"}
STOPPED_BY_FORCE = frozenset({"kube-apiserver", "kube-controller-manager"})  # asked politely they take their time


class NotReady(Exception):
    """Something did not become ready in time."""


class Failed(Exception):
    """A command ended with an exit code other than 0. The text is its output."""


class Cluster:
    def __init__(self, root: Path = ROOT, lane: str = "") -> None:
        name = f"e2e-{lane}" if lane else "e2e"
        self.work, self.logs = root / ".build" / name, root / ".build" / "log" / name
        self.processes = Processes(self.logs, self.work / "state.json")
        self.audit = audit.Audit(self.logs / "audit.jsonl")
        self.ca = self.work / "certificates" / "apiserver.crt"
        self.tokens = {name: name.rpartition(":")[2] + "-token" for name in (ADMIN, CONTROLLERS, SCHEDULER, KUBELET)}
        self._key = self.work / "service-accounts.key"
        self._lock = contextlib.ExitStack()
        self.kind = versions.NEWEST  # of kube-scheduler
        self._ports = iter(range(FIRST_SCHEDULER_PORT, FIRST_SCHEDULER_PORT + 1000))

    # Start and end

    async def start(self) -> None:
        self._prepare()
        network.enter()
        self._write("audit-policy.json", audit.POLICY)
        lines = [f'{token},{name},{name},"{GROUPS.get(name, "")}"\n' for name, token in self.tokens.items()]
        (self.work / "tokens.csv").write_text("".join(lines))
        await run(["openssl", "genrsa", "-out", str(self._key), "2048"])
        await self._start_etcd()
        await self._start_apiserver()
        self._start_controllers()
        await self._settle()

    async def renew(self) -> None:
        """The same cluster, with nothing in it."""
        async with self._without_etcd():
            shutil.rmtree(self.work / "etcd")
        await self._settle()

    async def _settle(self) -> None:
        await until("kube-controller-manager", self._accounts_are_there, self.processes.running[-1])
        await self.apply(*shipped.rights())

    async def stop(self) -> None:
        await self.processes.end_all(STOPPED_BY_FORCE)
        shutil.rmtree(self.work / "etcd", ignore_errors=True)
        self._lock.close()

    def _prepare(self) -> None:
        """Makes sure that no other run uses the folder and nothing of the last run is left."""
        self.work.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = self._lock.enter_context((self.work / "lock").open("a"))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another run in {self.work}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        for name in processes.end_leftovers(self.work / "state.json"):
            say(f"ended {name}, which a killed run had left behind")
        for entry in self.work.iterdir():
            if entry.name != "lock":
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        shutil.rmtree(self.logs, ignore_errors=True)
        self.logs.mkdir(parents=True)

    async def _start_etcd(self) -> None:
        peers = "http://127.0.0.1:2380"
        etcd = self.processes.start(
            "etcd", binaries.program(binaries.ETCD), f"--data-dir={self.work / 'etcd'}", "--unsafe-no-fsync",
            f"--listen-client-urls={ETCD}", f"--advertise-client-urls={ETCD}", f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}", f"--initial-cluster=default={peers}",
            "--quota-backend-bytes=8589934592", "--auto-compaction-retention=1h",
        )  # fmt: skip
        await self._until_ok(f"{ETCD}/health", etcd)

    async def _start_apiserver(self) -> None:
        apiserver = self.processes.start(
            "kube-apiserver", binaries.program("kube-apiserver"),
            f"--etcd-servers={ETCD}", f"--cert-dir={self.ca.parent}",
            "--secure-port=6443", "--bind-address=127.0.0.1", f"--advertise-address={network.ADDRESS}",
            "--service-account-issuer=https://e2e", f"--service-account-key-file={self._key}",
            f"--service-account-signing-key-file={self._key}", "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
            f"--token-auth-file={self.work / 'tokens.csv'}", "--allow-privileged=true",
            "--kubelet-preferred-address-types=InternalIP",
            f"--audit-policy-file={self.work / 'audit-policy.json'}", f"--audit-log-path={self.logs / 'audit.jsonl'}",
            "--audit-log-maxsize=100000",  # MB: a log that is turned over could not be read from a mark on
        )  # fmt: skip
        await until("kube-apiserver", lambda: self.answers(f"{URL}/readyz", self.tokens[ADMIN]), apiserver)

    def _start_controllers(self) -> None:
        config = self.kubeconfig(CONTROLLERS, self.tokens[CONTROLLERS])
        self.processes.start(
            "kube-controller-manager", binaries.program("kube-controller-manager"),
            f"--kubeconfig={config}", f"--authentication-kubeconfig={config}", f"--authorization-kubeconfig={config}",
            f"--service-account-private-key-file={self._key}", f"--root-ca-file={self.ca}",
            "--use-service-account-credentials", "--bind-address=127.0.0.1", "--leader-elect=false",
            "--kube-api-qps=1000", "--kube-api-burst=1000",
            # Simulated nodes have nobody who renews their lease.
            "--node-monitor-grace-period=24h", "--node-startup-grace-period=24h",
        )  # fmt: skip

    async def _accounts_are_there(self) -> bool:
        wanted = {(namespace, "default") for namespace in ("default", shipped.NAMESPACE)}
        found = await self.get("/api/v1/serviceaccounts")
        return wanted <= {(item["metadata"]["namespace"], item["metadata"]["name"]) for item in found["items"]}

    @contextlib.asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        """Meanwhile the API server cannot be reached."""
        (apiserver,) = (process for process in self.processes.running if process.name == "kube-apiserver")
        await self.processes.end(apiserver, signal.SIGKILL)
        try:
            yield
        finally:
            await self._start_apiserver()

    async def back_up(self) -> None:
        """Makes a copy of etcd; the control plane is down for a moment."""
        async with self._without_etcd():
            shutil.rmtree(self.work / "copy", ignore_errors=True)
            shutil.copytree(self.work / "etcd", self.work / "copy")

    async def restore(self, *, moved_on: bool) -> None:
        """Restores etcd from that copy and restarts the control plane. `moved_on`: revisions are first moved
        beyond all that were given out, and those compacted, as `etcdutl snapshot restore --bump-revision
        --mark-compacted` does; else they go back."""
        async with self._without_etcd(moved_on=moved_on):
            shutil.rmtree(self.work / "etcd")
            shutil.copytree(self.work / "copy", self.work / "etcd")

    @contextlib.asynccontextmanager
    async def _without_etcd(self, *, moved_on: bool = False) -> AsyncIterator[None]:
        for name, how in (
            ("kube-controller-manager", signal.SIGKILL), ("kube-apiserver", signal.SIGKILL), ("etcd", signal.SIGTERM)
        ):  # fmt: skip
            (process,) = (process for process in self.processes.running if process.name == name)
            await self.processes.end(process, how)
        yield
        await self._start_etcd()
        if moved_on:
            await self._move_on()
        await self._start_apiserver()
        self._start_controllers()

    async def _move_on(self) -> None:
        def encoded(text: str) -> str:
            return base64.b64encode(text.encode()).decode()

        async with aiohttp.ClientSession(ETCD, raise_for_status=True) as session:
            revision = ""
            for number in range(MOVED_ON):
                put = {"key": encoded("moved-on"), "value": encoded(str(number))}
                async with session.post("/v3/kv/put", json=put) as response:
                    revision = (await response.json())["header"]["revision"]
            compaction = {"revision": revision, "physical": True}
            async with session.post("/v3/kv/compaction", json=compaction):
                pass

    # Components of a test

    @contextlib.asynccontextmanager
    async def extender(
        self, *arguments: str, name: str = "extender", port: int = shipped.EXTENDER_PORT,
        kubeconfig: Path | None = None, ready: bool = True, **environment: str,
    ) -> AsyncIterator[Process]:  # fmt: skip
        """`gpushare extender` with the rights of deploy/. Its exit code is checked, unless it was killed."""
        process = await self.start_extender(
            *arguments, name=name, port=port, kubeconfig=kubeconfig, ready=ready, **environment
        )
        try:
            yield process
        finally:
            was_running = process.running
            code = await self.processes.end(process)
        if was_running and code:
            raise processes.Ended(f"{name} ended with exit code {code} after SIGTERM; {process.log}:\n{process.tail()}")

    async def start_extender(
        self, *arguments: str, name: str = "extender", port: int = shipped.EXTENDER_PORT,
        kubeconfig: Path | None = None, ready: bool = True, **environment: str,
    ) -> Process:  # fmt: skip
        config = kubeconfig or await self.account_kubeconfig(shipped.NAMESPACE, shipped.EXTENDER)
        process = self.processes.start(
            name, Path(sys.executable).parent / "gpushare", "extender", "--port", str(port),
            "--kubeconfig", config, *arguments, environment={**os.environ, **environment},
        )  # fmt: skip
        try:
            if ready:
                await self._until_ok(f"http://127.0.0.1:{port}/readyz", process)
        except BaseException:
            await self.processes.end(process)
            raise
        return process

    @contextlib.asynccontextmanager
    async def scheduler(
        self, *, name: str = "default-scheduler", log: str | None = None, verbosity: int = 2, tuned: bool = False,
        **changes: Any,
    ) -> AsyncIterator[Process]:  # fmt: skip
        """kube-scheduler with the configuration of deploy/, changed by `changes`. `tuned`: with the settings that
        gpu-scheduler.yaml offers."""
        port, log, kind = next(self._ports), log or f"kube-scheduler-{name}", self.kind
        flags, environment = shipped.scheduler_tuning() if tuned else ([], {})
        config = self.kubeconfig(SCHEDULER, self.tokens[SCHEDULER])
        file = self._write(f"{log}-{port}.json", kind.settings(config, name=name, **changes))
        process = self.processes.start(
            log, kind.program, *kind.arguments(file, config), f"-v={verbosity}",
            "--bind-address=127.0.0.1", f"--secure-port={port}",
            f"--authentication-kubeconfig={config}", f"--authorization-kubeconfig={config}", *flags,
            environment={**os.environ, **environment},
        )  # fmt: skip
        try:
            await self._until_ok(f"https://127.0.0.1:{port}{kind.health}", process)
            yield process
        finally:
            await self.processes.end(process, kind.ended_by)

    async def account_kubeconfig(self, namespace: str, account: str, server: str = URL) -> Path:
        """A kubeconfig with the rights of this service account. `server`: a proxy in front of the API server."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        answer = await self.call("POST", path, {"spec": {"expirationSeconds": TOKEN_SECONDS}})
        return self.kubeconfig(f"{namespace}-{account}", answer["status"]["token"], server)

    def kubeconfig(self, name: str, token: str, server: str = URL) -> Path:
        cluster: dict[str, str] = {"server": server}
        if server.startswith("https"):
            cluster["certificate-authority"] = str(self.ca)
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "e2e", "cluster": cluster}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": name}}],
            "current-context": "e2e",
        }
        return self._write(f"{name.replace(':', '-')}.kubeconfig", content)

    # Asking

    async def kubectl(self, *arguments: str | Path, given: str | None = None, with_stderr: bool = False) -> str:
        """As admin. Returns its output; raises if its exit code is not 0. `with_stderr`: warnings come first."""
        config = self.kubeconfig(ADMIN, self.tokens[ADMIN])
        command = [str(binaries.program("kubectl")), f"--kubeconfig={config}", *map(str, arguments)]
        return await run(command, given, with_stderr=with_stderr)

    async def define(self, file: Path) -> None:
        """Its kinds of objects are served when this returns. kubectl cannot wait for a kind that has no status yet."""
        await self.kubectl("apply", "-f", file)

        async def served() -> bool:
            with contextlib.suppress(Failed):
                return bool(await self.kubectl("wait", "--for=condition=Established", f"-f{file}", "--timeout=5s"))
            return False

        await wait.eventually_asked(served, f"{file.name} is served", 30)

    async def apply(self, *objects: dict[str, Any]) -> None:
        await self.kubectl("apply", "-f", "-", given=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    async def get(self, path: str) -> Any:
        return await self.call("GET", path)

    async def call(self, method: str, path: str, body: object = None) -> Any:
        headers = {"Authorization": f"Bearer {self.tokens[ADMIN]}"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.request(method, URL + path, json=body, ssl=self.trust()) as response,
        ):
            response.raise_for_status()
            return await response.json()

    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca))

    # Waiting

    async def _until_ok(self, url: str, process: Process) -> None:
        await until(process.name, lambda: self.answers(url), process)

    async def answers(self, url: str, token: str = "") -> bool:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with (
                aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=5)) as session,
                session.get(url, ssl=False) as response,
            ):
                return response.status == 200
        return False

    def _write(self, name: str, content: object) -> Path:
        file = self.work / name
        file.write_text(json.dumps(content, indent=2))
        return file


async def until(what: str, condition: Callable[[], Awaitable[bool]], process: Process) -> None:
    """Waits for something that this process does."""

    async def checked() -> bool:
        process.check()
        return await condition()

    try:
        await wait.eventually_asked(checked, f"{what} is ready", READY_SECONDS, every=0.05)
    except AssertionError as late:
        raise NotReady(f"{late}; {process.log}:\n{process.tail()}") from None


async def run(command: list[str], given: str | None = None, *, with_stderr: bool = False) -> str:
    done = await asyncio.to_thread(subprocess.run, command, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return f"{done.stderr}{done.stdout}" if with_stderr else str(done.stdout)


def say(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)
