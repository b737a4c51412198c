"""Objects by name: which one is meant, whatever version of it is seen."""

from typing import Any, Final, NamedTuple

Object = dict[str, Any]

WORKLOADS: Final = ("DaemonSet", "Deployment")  # what has pods


class Key(NamedTuple):
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def key_of(wanted: Object) -> Key:
    """`wanted`: an object as it is applied."""
    metadata = wanted["metadata"]
    return Key(wanted["kind"], metadata.get("namespace", ""), metadata["name"])
