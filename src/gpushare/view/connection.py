"""What the two ways of reading a cluster have in common.

Nothing is ever changed. `kubectl.Kubectl` is for use as kubectl's plugin: kubectl is there, knows every way of logging
in, and starting it costs less time than loading our own HTTP client. `direct.Direct` needs nothing but a kubeconfig.
With either a request ends after 10 seconds, says after one second what it waits for, and fails with a `UserError`. What
either needs is imported when it is used: `kubectl inspect gpushare` must start at once.
"""

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpushare.kube.errors import ApiError, KubeError, Unreachable
from gpushare.obs.errors import CLUSTER_NOT_ASKED, UserError
from gpushare.view.source import Forbidden, NotFound

if TYPE_CHECKING:
    from gpushare.kube.auth.login import Access

PATIENCE: Final = 1.0  # seconds after which the user is told what is waited for
LIMIT: Final = 10.0  # seconds for each request
WAITING: Final = "waiting for the API server ({request})"
DRY_RUN: Final = "?dryRun=All"

Notify = Callable[[str], None]


class Connection(ABC):
    """A way to one cluster. `notify` is called with what is waited for."""

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
        self._one_at_a_time = threading.Lock()  # for ways that do not bear two threads

    @property
    def access(self) -> "Access":
        """Where the cluster is and who we are: read once."""
        from gpushare.kube.auth import login

        if self._access is None:
            self._access = login.load(self._kubeconfig, self._context, self._environ, _home(self._environ))
        return self._access

    def get(self, path: str) -> bytes:
        try:
            return self._request(path, None)
        except KubeError as error:
            raise self._explained(error, path) from None

    def dry_run(self, path: str, draft: bytes) -> bytes:
        try:
            return self._request(path, draft)
        except ApiError:
            raise
        except KubeError as error:
            raise self._explained(error, path + DRY_RUN) from None

    @abstractmethod
    def _request(self, path: str, draft: bytes | None) -> bytes:
        """The body of a GET or, with a draft, of a POST as a dry run; or a KubeError."""

    def _waiting(self, path: str, draft: bytes | None) -> str:
        return WAITING.format(request=f"GET {path}" if draft is None else f"POST {path}{DRY_RUN}")

    def _no_answer(self) -> Unreachable:
        return Unreachable(f"no answer within {self._limit:g} s", sent=True)

    def _explained(self, error: KubeError, path: str) -> UserError:
        """A failed request in the three lines people read."""
        if isinstance(error, ApiError) and error.status == 404:
            way = "is it a Kubernetes API server? kubectl version"
            return NotFound(f"not there: {path}", error.message or "404", way, CLUSTER_NOT_ASKED)
        from gpushare.kube import failures  # costs time to load, and a kind that is not there is no fault

        explanation = failures.explain(error, self.access)
        kind = Forbidden if isinstance(error, ApiError) and error.status == 403 else UserError
        return kind(explanation.what, explanation.why, explanation.way, CLUSTER_NOT_ASKED)


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ["HOME"]) if environ.get("HOME") else Path.home()
