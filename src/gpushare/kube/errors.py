"""How asking the cluster can go wrong.

Raised by everything in this folder. The difference that matters to callers is whether a request may have been carried
out: a bind that was surely not sent can be undone at once, one that may have been sent must be looked up first.
"""


class KubeError(Exception):
    """A fault of configuration or environment, in three lines a person can act on: what, why, and the way out."""

    def __init__(self, what: str, why: str, way: str) -> None:
        super().__init__(what, why, way)
        # Causes may be another program's words: each stays one line.
        self.what, self.why, self.way = (" ".join(text.split()) for text in (what, why, way))

    def __str__(self) -> str:
        return f"{self.what}: {self.why} (try: {self.way})"


class ApiError(Exception):
    """The API server answered, and the answer was no. Nothing was changed."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(status, reason, message, retry_after)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after

    def __str__(self) -> str:
        return f"{self.status} {self.reason}: {self.message}" if self.message else f"{self.status} {self.reason}"


class Unreachable(Exception):
    """There was no answer. `sent` is False only when the request was surely not carried out."""

    def __init__(self, message: str, sent: bool) -> None:
        super().__init__(message, sent)
        self.message = message
        self.sent = sent

    def __str__(self) -> str:
        return self.message


class WentBack(ApiError):
    """The cluster's history is another one than the one we know: all that was read before is void."""

    def __init__(self, before: int, now: int) -> None:
        super().__init__(410, "WentBack", f"revision {now} after {before}: etcd was put back to an older copy")


class Malformed(Exception):
    """An answer that is not what the Kubernetes API promises. The message says where, never what was in it."""
