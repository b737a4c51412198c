"""Who we are towards the API server: a fixed token, a token file that is rotated, or a program that prints credentials.

`current` is called before every request and must be cheap. `refresh` is called when the API server did not accept the
credentials.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from gpushare.kube.auth.configfile import Cluster, Exec
from gpushare.kube.auth.tls import Pair
from gpushare.kube.errors import NoAccess

EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
EXEC_LIMIT = 10.0  # seconds
REREAD = 60.0  # seconds; a change of the file is usually noticed at once, by its inode, time and size


class Secret(NamedTuple):
    token: str | None = None
    pair: Pair | None = None


class Credential(Protocol):
    async def current(self) -> Secret: ...
    def refresh(self) -> None: ...


class Fixed:
    """A token that never changes, or none."""

    def __init__(self, token: str | None) -> None:
        self._secret = Secret(token)

    async def current(self) -> Secret:
        return self._secret

    def refresh(self) -> None:
        pass


class TokenFile:
    """kubelet replaces a pod's token about once an hour; the old one stops being accepted."""

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self._path = path
        self._clock = clock
        self._token = ""
        self._read: tuple[int, int, int] | None = None  # inode, time and size of what was read
        self._due = 0.0

    async def current(self) -> Secret:
        try:
            stat = self._path.stat()
            version = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if version != self._read or self._clock() >= self._due:
                self._token = self._path.read_text("ascii").strip() or self._token
                self._read = version
                self._due = self._clock() + REREAD
        except (OSError, UnicodeDecodeError) as error:
            if not self._token:  # else the file is being replaced
                raise NoAccess(
                    f"the token file cannot be read: {self._path}",
                    getattr(error, "strerror", None) or "it is not text",
                    "correct the path, or get a new kubeconfig",
                ) from None
        return Secret(self._token)

    def refresh(self) -> None:
        self._read = None


class _ExecStatus(msgspec.Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: datetime | None = None


class _ExecCredential(msgspec.Struct):
    status: _ExecStatus | None = None


class ExecPlugin:
    """Credentials from a program, kept until they expire or are refused."""

    def __init__(
        self,
        spec: Exec,
        cluster: Cluster,
        folder: Path,
        environ: Mapping[str, str],
        now: Callable[[], float],
        limit: float = EXEC_LIMIT,
    ) -> None:
        if spec.api_version not in EXEC_VERSIONS:
            raise NoAccess(
                f'"{spec.command}" speaks {spec.api_version}',
                f"gpushare understands {' and '.join(EXEC_VERSIONS)}",
                "upgrade that program, and its entry in the kubeconfig",
            )
        # A name with a slash is relative to the kubeconfig, a bare one is looked up in PATH.
        self._command = str(folder / spec.command) if "/" in spec.command else spec.command
        self._spec = spec
        self._environ = dict(environ)
        self._environ.update({variable.name: variable.value for variable in spec.env or ()})
        self._environ["KUBERNETES_EXEC_INFO"] = _exec_info(spec, cluster)
        self._now = now
        self._limit = limit
        self._secret: Secret | None = None
        self._expires: float | None = None
        self._lock = asyncio.Lock()

    async def current(self) -> Secret:
        async with self._lock:  # many requests may wait for one run of the program
            if self._secret is None or (self._expires is not None and self._now() >= self._expires):
                self._secret, self._expires = self._parse(await self._run())
            return self._secret

    def refresh(self) -> None:
        self._secret = None

    async def _run(self) -> bytes:
        try:
            process = await asyncio.create_subprocess_exec(
                self._command,
                *(self._spec.args or ()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self._environ,
                start_new_session=True,  # so that its children end with it
            )
        except OSError as error:
            raise self._error(f"{error.strerror}") from None
        try:
            async with asyncio.timeout(self._limit):
                output, complaint = await process.communicate()
        except TimeoutError:
            raise self._error(f"it did not end within {self._limit:g} s") from None
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        if process.returncode != 0:
            lines = complaint.decode("utf-8", "replace").strip().splitlines()
            raise self._error(lines[-1][:200] if lines else f"it ended with exit code {process.returncode}")
        return output

    def _parse(self, output: bytes) -> tuple[Secret, float | None]:
        try:
            status = msgspec.json.decode(output, type=_ExecCredential).status or _ExecStatus()
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise self._error("what it printed is not an ExecCredential") from None
        pair = None
        if status.client_certificate_data and status.client_key_data:
            # Unlike in a kubeconfig these are PEM, not base64.
            pair = Pair(status.client_certificate_data.encode(), status.client_key_data.encode())
        if not status.token and not pair:
            raise self._error("it printed neither a token nor a client certificate")
        expires = status.expiration_timestamp.timestamp() if status.expiration_timestamp else None
        return Secret(status.token or None, pair), expires

    def _error(self, why: str) -> NoAccess:
        way = self._spec.install_hint or "run it by hand: " + " ".join([self._spec.command, *(self._spec.args or ())])
        return NoAccess(f'no credentials from "{self._spec.command}"', why, way)


def _exec_info(spec: Exec, cluster: Cluster) -> str:
    spec_: dict[str, object] = {"interactive": False}
    if spec.provide_cluster_info:
        spec_["cluster"] = cluster
    info = {"apiVersion": spec.api_version, "kind": "ExecCredential", "spec": spec_}
    return msgspec.json.encode(info).decode()
