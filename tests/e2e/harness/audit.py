"""The API server's audit log: who asked for what since a mark.

The server writes one line per answered request (metadata only). Tests take a mark, do something, and count requests.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec

POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata"}],
}
WRITES = ("create", "update", "patch", "delete", "deletecollection")


class User(msgspec.Struct, frozen=True, gc=False):
    username: str = ""


class Target(msgspec.Struct, frozen=True, gc=False):
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


class Status(msgspec.Struct, frozen=True, gc=False):
    code: int = 0


class Notes(msgspec.Struct, frozen=True, gc=False):
    decision: str = msgspec.field(default="", name="authorization.k8s.io/decision")


class Request(msgspec.Struct, rename="camel", gc=False):
    verb: str = ""
    stage: str = ""
    user: User = User()
    object_ref: Target = Target()
    response_status: Status = Status()
    annotations: Notes = Notes()
    request_received_timestamp: str = ""

    @property
    def kind(self) -> str:
        """As RBAC names it: pods/binding."""
        target = self.object_ref
        return f"{target.resource}/{target.subresource}" if target.subresource else target.resource

    @property
    def is_write(self) -> bool:
        return self.verb in WRITES

    @property
    def lacks_right(self) -> bool:
        """Refused for want of a right. Other answers are 403, too: an event into a namespace that is being deleted."""
        return self.annotations.decision == "forbid"


_decode = msgspec.json.Decoder(Request).decode


class Audit:
    def __init__(self, path: Path) -> None:
        self._path = path

    def mark(self) -> int:
        return self._path.stat().st_size

    def since(self, mark: int) -> Iterator[Request]:
        """Every request answered after the mark. A line that is not complete yet is left for later; a line that was not
        complete at the mark belongs to before."""
        with self._path.open("rb") as file:
            if mark:
                file.seek(mark - 1)
                if not file.readline().endswith(b"\n"):
                    return
            for line in file:
                if line.endswith(b"\n"):
                    yield _decode(line)
