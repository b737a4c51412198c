"""How asking the cluster can fail. `except KubeError` catches every way.

The difference that matters most is whether a request may have been carried out: a binding that was surely not sent can
be undone at once; one that may have been sent must be looked up first.
"""

from gpushare.obs.errors import CLUSTER_NOT_ASKED, UserError


class KubeError(Exception):
    """The cluster could not be asked, or it refused. Always raised as one of the classes below."""


class NoAccess(KubeError, UserError):
    """There is no usable way to the cluster: a kubeconfig, a certificate or credentials are missing or invalid."""

    def __init__(self, what: str, why: str, way: str) -> None:
        super().__init__(what, why, way, CLUSTER_NOT_ASKED)


class ApiError(KubeError):
    """The API server answered and refused. Nothing was changed."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(status, reason, message, retry_after)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after

    def __str__(self) -> str:
        return f"{self.status} {self.reason}: {self.message}" if self.message else f"{self.status} {self.reason}"


class WentBack(ApiError):
    """etcd was restored from an older copy: everything read before is void."""

    def __init__(self, before: int, now: int) -> None:
        super().__init__(410, "WentBack", f"revision {now} after {before}: etcd was restored from an older copy")


class Unreachable(KubeError):
    """There was no answer. `sent` is False only when the request was surely not carried out."""

    def __init__(self, message: str, sent: bool) -> None:
        super().__init__(message, sent)
        self.message = message
        self.sent = sent

    def __str__(self) -> str:
        return self.message


class Malformed(KubeError):
    """The answer is not what the Kubernetes API promises. The message says where, never what was in it."""
