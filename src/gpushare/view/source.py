"""Reading the cluster, and asking what it would create: through kubectl, or directly.

Nothing is ever changed. `Kubectl` is for use as kubectl's plugin: kubectl is there, knows every way of logging in, and
starting it costs us less than our own HTTP client. `Direct` needs nothing but a kubeconfig. Either way a request ends
after 10 seconds, says after one what it waits for, and fails with the three lines of `UserError`. What either needs is
imported when it is used: `kubectl inspect gpushare` must start at once.
"""

import contextlib
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from gpushare.kube.errors import ApiError, KubeError, NoAccess, Unreachable
from gpushare.obs.errors import CLUSTER_NOT_ASKED, UserError

if TYPE_CHECKING:
    import subprocess

    from gpushare.kube.auth.login import Access

PATIENCE: Final = 1.0  # seconds after which somebody wants to know what is waited for
LIMIT: Final = 10.0  # seconds for each request
WAITING: Final = "waiting for the API server ({asked})"
DRY_RUN: Final = "?dryRun=All"

Notify = Callable[[str], None]


class NotFound(UserError):
    """There is no such object (404)."""


class Forbidden(UserError):
    """This user may not read it (403)."""


class Source(Protocol):
    def get(self, path: str) -> bytes:
        """The body of a GET of an API path with its query, or a UserError."""


class Drafting(Source, Protocol):
    """One that can be asked about objects that do not exist yet."""

    def dry_run(self, path: str, draft: bytes) -> bytes:
        """The object that a POST would create, after admission; nothing is written. Its no is the ApiError it sent, a
        UserError says that it could not be asked."""


class Kubectl:
    """Asks through `kubectl get --raw` and `kubectl create --raw`. `notify` is told what is waited for."""

    def __init__(
        self,
        kubeconfig: str | None,
        context: str | None,
        notify: Notify,
        *,
        environ: Mapping[str, str] = os.environ,
        patience: float = PATIENCE,
        limit: float = LIMIT,
    ) -> None:
        self._kubeconfig, self._context, self._notify, self._environ = kubeconfig, context, notify, environ
        self._patience, self._limit = patience, limit

    def get(self, path: str) -> bytes:
        return self._asked(["get", "--raw", path], path)

    def dry_run(self, path: str, draft: bytes) -> bytes:
        path += DRY_RUN
        try:
            return self._run(["create", "--raw", path, "-f", "-"], f"POST {path}", draft)
        except ApiError:
            raise
        except KubeError as error:
            raise self._error(error, path) from None

    def namespace(self) -> str:
        """The one that is meant when none is named."""
        told = self._asked(["config", "view", "--minify", "-o", "jsonpath={..namespace}"], "kubeconfig")
        return told.decode("utf-8", "replace").strip() or "default"

    def _asked(self, words: list[str], path: str) -> bytes:
        try:
            return self._run(words, f"GET {path}")
        except KubeError as error:
            raise self._error(error, path) from None

    def _run(self, words: list[str], asked: str, given: bytes | None = None) -> bytes:
        """What kubectl prints. `given`: what it reads. What it complains about is raised as what it means."""
        process = self._start(words, given is not None)
        try:
            out, said = self._communicate(process, asked, given)
        finally:
            process.kill()
            # Not read to their end: a program that kubectl started to log in may hold them open for ever.
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):  # what it did not read is of no use any more
                        pipe.close()
            process.wait()
        if process.returncode == 0:
            return out
        raise failure(said.decode("utf-8", "replace"))

    def _start(self, words: list[str], reads: bool) -> "subprocess.Popen[bytes]":
        import subprocess

        command = ["kubectl", *words]
        command += ["--kubeconfig", self._kubeconfig] if self._kubeconfig else []
        command += ["--context", self._context] if self._context else []
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        try:
            stdin = pipe if reads else nothing
            return subprocess.Popen(command, stdin=stdin, stdout=pipe, stderr=pipe, env=dict(self._environ))
        except OSError as error:
            why = "there is none on PATH" if isinstance(error, FileNotFoundError) else str(error.strerror)
            way = "install it, or call gpushare by its own name, which asks the cluster without kubectl"
            raise UserError("kubectl cannot be started", why, way, CLUSTER_NOT_ASKED) from None

    def _communicate(self, process: "subprocess.Popen[bytes]", asked: str, given: bytes | None) -> tuple[bytes, bytes]:
        import subprocess

        try:
            return process.communicate(given, timeout=self._patience)
        except subprocess.TimeoutExpired:
            self._notify(WAITING.format(asked=asked))
        try:
            return process.communicate(timeout=self._limit - self._patience)
        except subprocess.TimeoutExpired:
            raise Unreachable(f"no answer within {self._limit:g} s", sent=True) from None

    def _error(self, error: KubeError, path: str) -> UserError:
        """kubectl's failure in our words. Its kubeconfig is read for them only: it knows server, context and user."""
        from gpushare.kube.auth import login

        try:
            access = login.load(self._kubeconfig, self._context, self._environ, _home(self._environ))
        except NoAccess as fault:
            return fault
        return explained(error, access, path)


class Direct:
    """Asks the API server itself."""

    def __init__(
        self,
        kubeconfig: str | None,
        context: str | None,
        notify: Notify,
        *,
        environ: Mapping[str, str] = os.environ,
        patience: float = PATIENCE,
        limit: float = LIMIT,
    ) -> None:
        self._kubeconfig, self._context, self._notify, self._environ = kubeconfig, context, notify, environ
        self._patience, self._limit = patience, limit
        self._access: Access | None = None

    @property
    def access(self) -> "Access":
        """Where the cluster is and who we are: read once."""
        from gpushare.kube.auth import login

        if self._access is None:
            self._access = login.load(self._kubeconfig, self._context, self._environ, _home(self._environ))
        return self._access

    def namespace(self) -> str:
        """The one that is meant when none is named."""
        return self.access.namespace

    def get(self, path: str) -> bytes:
        try:
            return self._run(path, None)
        except KubeError as error:
            raise explained(error, self.access, path) from None

    def dry_run(self, path: str, draft: bytes) -> bytes:
        try:
            return self._run(path, draft)
        except ApiError:
            raise
        except KubeError as error:
            raise explained(error, self.access, path + DRY_RUN) from None

    def _run(self, path: str, draft: bytes | None) -> bytes:
        import asyncio

        try:
            return asyncio.run(self._ask(self.access, path, draft))
        except TimeoutError:
            raise Unreachable(f"no answer within {self._limit:g} s", sent=True) from None

    async def _ask(self, access: "Access", path: str, draft: bytes | None) -> bytes:
        import asyncio

        import msgspec

        from gpushare.kube import client

        asked = f"GET {path}" if draft is None else f"POST {path}{DRY_RUN}"
        notice = asyncio.get_running_loop().call_later(self._patience, self._notify, WAITING.format(asked=asked))
        try:
            async with asyncio.timeout(self._limit), client.connect(access, timeout=self._limit) as api:
                if draft is None:
                    return bytes(await api.get(path, msgspec.Raw))
                return bytes(await api.dry_run(path, msgspec.Raw(draft), msgspec.Raw))
        finally:
            notice.cancel()


_FROM_SERVER = r"Error from server(?: \((?P<reason>\w+)\))?: (?P<message>.*)"
_INVALID = r'^The (?P<object>\S+ "[^"]*" is invalid: )(?P<causes>.*)\Z'
_LOG_IN = "You must be logged in to the server"
_REFUSED = r"The connection to the server \S+ was refused"
_NO_WAY = r"Unable to connect to the server: (?P<cause>.*)"
_STATUS = {
    "BadRequest": 400, "Unauthorized": 401, "Forbidden": 403, "NotFound": 404, "AlreadyExists": 409, "Conflict": 409,
    "RequestEntityTooLarge": 413, "Invalid": 422, "TooManyRequests": 429, "ServiceUnavailable": 503, "Timeout": 504,
}  # fmt: skip


def failure(said: str) -> KubeError:
    """What kubectl's stderr says. Its last line counts: those before it are of its own log. Only for what is invalid it
    uses several, one for each cause."""
    if found := re.search(_INVALID, said.strip(), re.MULTILINE | re.DOTALL):
        causes = [
            cause.removeprefix(": ") for cause in re.split(r"\s*^\* ", found["causes"], flags=re.MULTILINE) if cause
        ]
        message = found["object"] + (causes[0] if len(causes) == 1 else f"[{', '.join(causes)}]")
        return ApiError(422, "Invalid", message)
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    last = lines[-1] if lines else "it says nothing"
    if found := re.search(_FROM_SERVER, last):
        reason = found["reason"] or ""
        return ApiError(_STATUS.get(reason, 500), reason, found["message"])
    if _LOG_IN in last:
        return ApiError(401, "Unauthorized", "")
    if re.search(_REFUSED, last):
        return Unreachable("connection refused", sent=False)
    if found := re.search(_NO_WAY, last):
        return Unreachable(found["cause"], sent=False)
    return NoAccess("kubectl cannot ask the cluster", last.removeprefix("error: "), "kubectl get --raw /readyz")


def explained(error: KubeError, access: "Access", path: str) -> UserError:
    """A failed request in the three lines people read."""
    from gpushare.kube import failures

    if isinstance(error, ApiError) and error.status == 404:
        way = "is it a Kubernetes API server? kubectl version"
        return NotFound(f"not there: {path}", error.message or "404", way, CLUSTER_NOT_ASKED)
    told = failures.explain(error, access)
    kind = Forbidden if isinstance(error, ApiError) and error.status == 403 else UserError
    return kind(told.what, told.why, told.way, CLUSTER_NOT_ASKED)


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ["HOME"]) if environ.get("HOME") else Path.home()
