"""What this command does not understand, and says so: always before anything is changed.

The parts of a manifest and of a configuration that it reads are here with their types as Kubernetes has them: whoever
has written a list where an object belongs reads where that is. Pure.
"""

from typing import Any, Final, TypeVar

import msgspec

from gpushare.install.entries import Object
from gpushare.obs.errors import UserError

T = TypeVar("T")

BY_HAND: Final = "change it by hand: docs/install-manifests.md, One control plane"


def refused(what: str, why: str, way: str = BY_HAND) -> UserError:
    return UserError(what, why, way)


class Shape(msgspec.Struct, rename="camel"):
    """Fields that are not named here are not looked at."""


class Port(Shape):
    name: str | None = None
    container_port: int | None = None


class Asked(Shape):
    host: str | None = None
    port: int | str | None = None
    scheme: str | None = None
    path: str | None = None


class Probe(Shape):
    http_get: Asked | None = None


class Mount(Shape):
    name: str
    mount_path: str
    sub_path: str | None = None
    sub_path_expr: str | None = None


class Container(Shape):
    image: str | None = None
    ports: list[Port] | None = None
    volume_mounts: list[Mount] | None = None
    readiness_probe: Probe | None = None
    liveness_probe: Probe | None = None
    startup_probe: Probe | None = None


class HostPath(Shape):
    path: str


class Volume(Shape):
    name: str
    host_path: HostPath | None = None


class Spec(Shape):
    containers: list[Container]
    volumes: list[Volume] | None = None


class Metadata(Shape):
    name: str
    namespace: str | None = None


class Pod(Shape):
    metadata: Metadata
    spec: Spec


class Profile(Shape):
    scheduler_name: str | None = None


class Election(Shape):
    resource_name: str | None = None
    resource_namespace: str | None = None


class Managed(Shape):
    name: str | None = None


class Extender(Shape):
    url_prefix: str | None = None
    bind_verb: str | None = None
    managed_resources: list[Managed] | None = None


class Configuration(Shape):
    """Also a Policy."""

    extenders: list[Extender] | None = None
    profiles: list[Profile] | None = None
    leader_election: Election | None = None
    percentage_of_nodes_to_score: int | None = None


def check(data: Object, kind: type[T], name: str) -> T:
    """`name`: of the file, as messages have it."""
    try:
        return msgspec.convert(_with_words(data), kind)
    except msgspec.ValidationError as error:
        what, _, where = str(error).replace("`", "").replace(" | null", "").replace("array", "list").partition(" - at ")
        why = f"{where.removeprefix('$.') or 'the file'}: {what.lower()}"
        raise refused(f"{name} is not understood", why) from None
    except RecursionError:
        raise refused(f"{name} is not understood", "a part of it contains itself, by an anchor and an alias") from None


def _with_words(data: Any) -> Any:
    """YAML keys may be numbers; nobody reads those."""
    if isinstance(data, dict):
        return {key: _with_words(value) for key, value in data.items() if isinstance(key, str)}
    return [_with_words(one) for one in data] if isinstance(data, list) else data
