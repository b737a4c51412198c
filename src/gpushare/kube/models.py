"""JSON around the objects of `core.facts.objects`: lists, watch events, refusals, bindings and events.

As in `core.facts.objects`, no field that arrives is required.
"""

from typing import Generic, TypeVar

import msgspec

from gpushare.core.facts import objects

T = TypeVar("T")


class ListMeta(objects.Struct):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class ListOf(objects.Struct, Generic[T]):
    metadata: ListMeta = msgspec.field(default_factory=ListMeta)
    items: list[T] | None = None


class EventOf(objects.Struct, Generic[T]):
    """One line of a watch, if it shows an object of that kind."""

    type: str
    object: T


class WireEvent(objects.Struct):
    """Any line of a watch. The type of the object depends on `type`, so it is decoded in a second step."""

    type: str = ""
    object: msgspec.Raw = msgspec.Raw(b"{}")


class Versioned(objects.Struct):
    """Any object or list, as far as its resource version."""

    metadata: ListMeta = msgspec.field(default_factory=ListMeta)


def number(version: str) -> int:
    """A resource version as a number, which grows with each change; 0 if it is not a number: its age is unknown."""
    return int(version) if version.isdecimal() else 0


class StatusDetails(objects.Struct):
    retry_after_seconds: int | None = None


class Status(objects.Struct):
    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: StatusDetails | None = None


class ServerVersion(objects.Struct):
    major: str = ""
    minor: str = ""
    git_version: str = ""


class ObjectMeta(objects.Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    annotations: dict[str, str] | None = None


class ObjectReference(objects.Struct, omit_defaults=False):
    kind: str
    name: str
    api_version: str = "v1"
    namespace: str | msgspec.UnsetType = msgspec.UNSET
    uid: str | msgspec.UnsetType = msgspec.UNSET


class Binding(objects.Struct, omit_defaults=False):
    metadata: ObjectMeta
    target: ObjectReference
    kind: str = "Binding"
    api_version: str = "v1"


class EventSource(objects.Struct):
    component: str = ""


class Event(objects.Struct, omit_defaults=False):
    """A core/v1 Event."""

    metadata: ObjectMeta
    involved_object: ObjectReference
    type: str
    reason: str
    message: str
    first_timestamp: str
    last_timestamp: str
    source: EventSource
    reporting_component: str
    count: int = 1
    kind: str = "Event"
    api_version: str = "v1"
