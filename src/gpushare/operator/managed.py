"""A node as the operator reads it: with all that a write must keep, and with which of its labels are whose.

The API server records who set each field (`metadata.managedFields`). Only the entries of our own programs are kept, and
of them only the keys: an operator of 1,000 nodes has no use for the others.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from gpushare.core.facts import names, objects

OURS: Final = frozenset(
    {names.OPERATOR_MANAGER, names.FINDER_MANAGER, names.DISCOVERY_MANAGER, names.VALIDATOR_MANAGER}
)
APPLY: Final = "Apply"
FIELD: Final = "f:"  # how the API server writes that a key is a field


class _Keys(objects.Struct):
    labels: dict[str, object] | None = msgspec.field(default=None, name="f:labels")
    annotations: dict[str, object] | None = msgspec.field(default=None, name="f:annotations")


class _Fields(objects.Struct):
    metadata: _Keys | None = msgspec.field(default=None, name="f:metadata")


class _Entry(objects.Struct):
    manager: str = ""
    operation: str = ""
    fields: _Fields | None = msgspec.field(default=None, name="fieldsV1")


class Metadata(objects.Metadata):
    managed_fields: list[_Entry] | None = None

    def __post_init__(self) -> None:
        entries = self.managed_fields or ()
        self.managed_fields = [one for one in entries if one.operation == APPLY and one.manager in OURS] or None


class Taint(objects.Taint, frozen=True):
    """With its time, which would be lost when the list is written again."""

    time_added: str | None = None


class Spec(objects.NodeSpec):
    taints: tuple[Taint, ...] | None = None


class Node(objects.Node):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: Spec = msgspec.field(default_factory=Spec)


def labels(node: Node, manager: str) -> frozenset[str]:
    """The labels that this program has applied, and that nobody has changed or removed since."""
    return _keys(one.labels for one in _entries(node, manager))


def managers(node: Node) -> frozenset[str]:
    """Those of our programs that have labels or annotations there."""
    return frozenset(
        manager for manager in OURS if any(one.labels or one.annotations for one in _entries(node, manager))
    )


def _entries(node: Node, manager: str) -> list[_Keys]:
    found = [one.fields for one in node.metadata.managed_fields or () if one.manager == manager]
    return [fields.metadata for fields in found if fields is not None and fields.metadata is not None]


def _keys(maps: Iterable[dict[str, object] | None]) -> frozenset[str]:
    return frozenset(key.removeprefix(FIELD) for one in maps for key in one or () if key.startswith(FIELD))
