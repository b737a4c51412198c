"""Where a cluster is read from, and how that can fail: what the rest of this folder knows of a cluster.

Pure. `kubectl.Kubectl` and `direct.Direct` are the two sources there are; tests have others.
"""

from typing import Protocol

from gpushare.obs.errors import UserError


class NotFound(UserError):
    """There is no such object (404)."""


class Forbidden(UserError):
    """This user may not read it (403)."""


class Source(Protocol):
    def get(self, path: str) -> bytes:
        """The body of a GET of an API path with its query, or a UserError."""


class Drafting(Source, Protocol):
    """A source that can also be asked about objects that do not exist yet."""

    def dry_run(self, path: str, draft: bytes) -> bytes:
        """The object that a POST would create, after admission; nothing is written. A refusal of the API server is
        raised as its ApiError; a UserError says that it could not be asked."""
