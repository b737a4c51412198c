"""Reads a cluster through kubectl, which knows every way of logging in, and turns its complaints into our errors."""

import contextlib
import re
from typing import TYPE_CHECKING

from gpushare.kube.errors import ApiError, KubeError, NoAccess, Unreachable
from gpushare.obs.errors import CLUSTER_NOT_ASKED, UserError
from gpushare.view.connection import DRY_RUN, Connection

if TYPE_CHECKING:
    import subprocess

_FROM_SERVER = r"Error from server(?: \((?P<reason>\w+)\))?: (?P<message>.*)"
_INVALID = r'^The (?P<object>\S+ "[^"]*" is invalid: )(?P<causes>.*)\Z'
_LOG_IN = "You must be logged in to the server"
_REFUSED = r"The connection to the server \S+ was refused"
_NO_CONNECTION = r"Unable to connect to the server: (?P<cause>.*)"
_STATUS = {
    "BadRequest": 400, "Unauthorized": 401, "Forbidden": 403, "NotFound": 404, "AlreadyExists": 409, "Conflict": 409,
    "RequestEntityTooLarge": 413, "Invalid": 422, "TooManyRequests": 429, "ServiceUnavailable": 503, "Timeout": 504,
}  # fmt: skip


class Kubectl(Connection):
    """Asks through `kubectl get --raw` and `kubectl create --raw`. Reads the kubeconfig only for an error, which names
    server, context and user."""

    def namespace(self) -> str:
        """The namespace that is meant when none is named."""
        words = ["config", "view", "--minify", "-o", "jsonpath={..namespace}"]
        try:
            printed = self._run(words, self._waiting("kubeconfig", None))
        except KubeError as error:
            raise self._explained(error, "kubeconfig") from None
        return printed.decode("utf-8", "replace").strip() or "default"

    def _request(self, path: str, draft: bytes | None) -> bytes:
        words = ["get", "--raw", path] if draft is None else ["create", "--raw", path + DRY_RUN, "-f", "-"]
        return self._run(words, self._waiting(path, draft), draft)

    def _run(self, words: list[str], message: str, stdin: bytes | None = None) -> bytes:
        """What kubectl prints. `message`: shown if it takes long. A failure is raised as the error it means."""
        process = self._start(words, reads=stdin is not None)
        try:
            out, complaint = self._communicate(process, message, stdin)
        finally:
            process.kill()
            # Not read to their end: a program that kubectl started to log in may hold them open for ever.
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):  # kubectl ended before it had read everything
                        pipe.close()
            process.wait()
        if process.returncode == 0:
            return out
        raise failure(complaint.decode("utf-8", "replace"))

    def _start(self, words: list[str], *, reads: bool) -> "subprocess.Popen[bytes]":
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

    def _communicate(
        self, process: "subprocess.Popen[bytes]", message: str, stdin: bytes | None
    ) -> tuple[bytes, bytes]:
        import subprocess

        try:
            return process.communicate(stdin, timeout=self._patience)
        except subprocess.TimeoutExpired:
            self._notify(message)
        try:
            return process.communicate(timeout=self._limit - self._patience)
        except subprocess.TimeoutExpired:
            raise self._no_answer() from None


def failure(complaint: str) -> KubeError:
    """The error that kubectl's stderr means. Its last line counts: those before it are kubectl's log. Only an invalid
    object takes several lines, one for each cause."""
    if invalid := re.search(_INVALID, complaint.strip(), re.MULTILINE | re.DOTALL):
        causes = [
            cause.removeprefix(": ") for cause in re.split(r"\s*^\* ", invalid["causes"], flags=re.MULTILINE) if cause
        ]
        message = invalid["object"] + (causes[0] if len(causes) == 1 else f"[{', '.join(causes)}]")
        return ApiError(422, "Invalid", message)
    lines = [line.strip() for line in complaint.splitlines() if line.strip()]
    last = lines[-1] if lines else "it says nothing"
    if answer := re.search(_FROM_SERVER, last):
        reason = answer["reason"] or ""
        return ApiError(_STATUS.get(reason, 500), reason, answer["message"])
    if _LOG_IN in last:
        return ApiError(401, "Unauthorized", "")
    if re.search(_REFUSED, last):
        return Unreachable("connection refused", sent=False)
    if no_connection := re.search(_NO_CONNECTION, last):
        return Unreachable(no_connection["cause"], sent=False)
    return NoAccess("kubectl cannot ask the cluster", last.removeprefix("error: "), "kubectl get --raw /readyz")
