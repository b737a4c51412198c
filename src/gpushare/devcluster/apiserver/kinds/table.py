"""The kinds this API server knows, as a table: one entry is all that a kind needs. Data only.

The functions in it are in `pods`, `workloads` and `small_kinds`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gpushare.core.facts import vitals
from gpushare.devcluster.apiserver.kinds import pods, small_kinds, workloads
from gpushare.devcluster.apiserver.kinds.rules import Cause
from gpushare.devcluster.apiserver.status import Object

NAMED: Final = {"metadata.name": "", "metadata.namespace": ""}


def _nothing(obj: Object) -> None:
    """For kinds whose objects are stored as they are sent."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind. `resource` is its full name, as kubectl takes it: `pods`, `deployments.apps`.

    `fields`: what a field selector may name, with the value for "not set".
    """

    resource: str
    kind: str
    version: str = "v1"
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    namespaced: bool = True
    fields: Mapping[str, str] = field(default_factory=lambda: NAMED)
    read: Callable[[Object], None] = _nothing  # what decoding adds: defaults, canonical quantities
    create: Callable[[Object], list[Cause]]
    update: Callable[[Object, Object], list[Cause]]
    status: Callable[[Object, Object], list[Cause]] | None = None  # None: no /status
    scalable: bool = False  # has /scale
    owns_pods: bool = False  # its deletion decides what happens to them
    grace: Callable[[Object, int | None], int] | None = None  # None: a deletion is immediate
    returns_deleted: bool = False  # DELETE answers with the object, not with a Status
    bookmark: Mapping[str, Any] = field(default_factory=dict)  # content of a bookmark besides metadata

    @property
    def plural(self) -> str:
        """Its name in a path."""
        return self.resource.partition(".")[0]

    @property
    def group(self) -> str:
        return self.resource.partition(".")[2]

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def full_kind(self) -> str:
        """Its name in a refusal."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    @property
    def head(self) -> bytes:
        """The first bytes of an object that is not in a list. In a list a real server leaves them out."""
        return f'{{"kind":"{self.kind}","apiVersion":"{self.api_version}",'.encode()


KINDS: Final = (
    Kind(
        resource="pods",
        kind="Pod",
        short=("po",),
        categories=("all",),
        fields=NAMED
        | {
            "spec.nodeName": "",
            "spec.schedulerName": "",
            "spec.restartPolicy": "",
            "spec.serviceAccountName": "",
            "spec.hostNetwork": "false",
            "status.phase": "",
            "status.nominatedNodeName": "",
        },
        read=pods.read,
        create=pods.create,
        update=pods.update,
        status=pods.update_status,
        grace=pods.grace,
        returns_deleted=True,
        bookmark={"spec": {"containers": None}, "status": {}},
    ),
    Kind(
        resource="nodes",
        kind="Node",
        short=("no",),
        namespaced=False,
        fields={"metadata.name": "", "spec.unschedulable": "false"},
        read=small_kinds.read_node,
        create=small_kinds.node,
        update=small_kinds.node_update,
        status=small_kinds.node_status,
        bookmark={"spec": {}, "status": {}},
    ),
    Kind(
        resource="configmaps",
        kind="ConfigMap",
        short=("cm",),
        create=small_kinds.config_map,
        update=lambda new, old: small_kinds.config_map(new),
    ),
    Kind(
        resource="secrets",
        kind="Secret",
        create=small_kinds.config_map,
        update=lambda new, old: small_kinds.config_map(new),
    ),
    Kind(
        resource="events",
        kind="Event",
        short=("ev",),
        fields=NAMED
        | dict.fromkeys((f"involvedObject.{part}" for part in ("kind", "namespace", "name", "uid", "fieldPath")), "")
        | {"reason": "", "reportingComponent": "", "type": ""},
        read=small_kinds.read_event,
        create=small_kinds.event,
        update=lambda new, old: small_kinds.event(new),
        bookmark={"involvedObject": {}, "source": {}},
    ),
    Kind(
        resource="namespaces",
        kind="Namespace",
        short=("ns",),
        namespaced=False,
        fields={"metadata.name": "", "status.phase": ""},
        create=small_kinds.namespace,
        update=small_kinds.namespace_update,
        status=small_kinds.namespace_update,
        returns_deleted=True,
        bookmark={"spec": {}, "status": {}},
    ),
    Kind(
        resource="deployments.apps",
        kind="Deployment",
        short=("deploy",),
        categories=("all",),
        read=workloads.read_deployment,
        create=workloads.create_deployment,
        update=workloads.update_deployment,
        status=workloads.update_status,
        scalable=True,
        owns_pods=True,
        bookmark={"spec": {"selector": None, "template": {"spec": {"containers": None}}, "strategy": {}}, "status": {}},
    ),
    Kind(
        resource="jobs.batch",
        kind="Job",
        categories=("all",),
        read=workloads.read_job,
        create=workloads.create_job,
        update=workloads.update_job,
        status=workloads.update_status,
        owns_pods=True,
        bookmark={"spec": {"template": {"spec": {"containers": None}}}, "status": {}},
    ),
    Kind(
        resource=f"{vitals.PLURAL}.{vitals.GROUP}",
        kind=vitals.KIND,
        version=vitals.VERSION,
        short=("gn",),
        namespaced=False,
        fields={"metadata.name": ""},
        read=small_kinds.read_gpu_node,
        create=small_kinds.gpu_node,
        update=small_kinds.gpu_node_update,
        status=small_kinds.gpu_node_status,
    ),
)

BY_RESOURCE: Final = {kind.resource: kind for kind in KINDS}
BY_KIND: Final = {kind.kind: kind for kind in KINDS}


def key(kind: Kind, namespace: str, name: str) -> str:
    """The key of an object in the store. Lists are sorted by it."""
    return f"{namespace}/{name}" if kind.namespaced else name


def selectable(resource: str, obj: Object) -> dict[str, str]:
    """The values of one object for field selectors."""
    values: dict[str, str] = {}
    for path, unset in BY_RESOURCE[resource].fields.items():
        value: Any = obj
        for step in path.split("."):
            value = value.get(step) if isinstance(value, dict) else None
        if isinstance(value, bool):
            value = "true" if value else "false"
        values[path] = value if isinstance(value, str) and value else unset
    return values
