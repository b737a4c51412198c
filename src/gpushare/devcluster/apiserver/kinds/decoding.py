"""The types of the fields that the stand-ins read. An object with other types is a bad request. Pure.

Fields that are not named here may be anything.
"""

from typing import Any, Literal

import msgspec

from gpushare.devcluster.apiserver.status import Object


class Shape(msgspec.Struct, rename="camel"):
    """Every field may be left out."""


class Owner(Shape):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Metadata(Shape):
    owner_references: list[Owner] | None = None
    finalizers: list[str] | None = None


class FieldRef(Shape):
    field_path: str = ""


class Source(Shape):
    field_ref: FieldRef | None = None


class Env(Shape):
    name: str = ""
    value: str | None = None
    value_from: Source | None = None


class Container(Shape):
    name: str | None = None
    image: str | None = None
    restart_policy: str | None = None
    command: list[str] | None = None
    args: list[str] | None = None
    env: list[Env] | None = None
    ports: list[dict[str, Any]] | None = None


class Gate(Shape):
    condition_type: str = ""


class PodSpec(Shape):
    node_name: str | None = None
    restart_policy: str | None = None
    scheduler_name: str | None = None
    termination_grace_period_seconds: int | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    readiness_gates: list[Gate] | None = None
    scheduling_gates: list[dict[str, Any]] | None = None
    tolerations: list[dict[str, Any]] | None = None


class Condition(Shape):
    type: str = ""
    status: str = ""
    reason: str | None = None
    last_transition_time: str | None = None


class Terminated(Shape):
    exit_code: int = 0
    reason: str | None = None
    finished_at: str | None = None


class Waiting(Shape):
    reason: str | None = None


class State(Shape):
    waiting: Waiting | None = None
    running: dict[str, Any] | None = None
    terminated: Terminated | None = None


class ContainerStatus(Shape):
    name: str = ""
    ready: bool | None = None
    started: bool | None = None
    restart_count: int = 0
    state: State | None = None
    last_state: State | None = None


class Address(Shape):
    ip: str = ""


class PodStatus(Shape):
    phase: str | None = None
    reason: str | None = None
    nominated_node_name: str | None = None
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    pod_ips: list[Address] | None = msgspec.field(name="podIPs", default=None)


class Pod(Shape):
    spec: PodSpec | None = None
    status: PodStatus | None = None


class NodeAddress(Shape):
    type: str = ""
    address: str = ""


class NodeSpec(Shape):
    unschedulable: bool | None = None
    taints: list[dict[str, Any]] | None = None


class NodeStatus(Shape):
    capacity: dict[str, Any] | None = None
    allocatable: dict[str, Any] | None = None
    conditions: list[Condition] | None = None
    addresses: list[NodeAddress] | None = None
    node_info: dict[str, str | dict[str, Any]] | None = None


class Node(Shape):
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class Subject(Shape):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    field_path: str = ""


class EventSource(Shape):
    component: str = ""
    host: str = ""


class Series(Shape):
    count: int = 0
    last_observed_time: str | None = None


class Event(Shape):
    involved_object: Subject | None = None
    source: EventSource | None = None
    series: Series | None = None
    message: str | None = None
    count: int | None = None
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None


class Template(Shape):
    metadata: dict[str, Any] | None = None
    spec: PodSpec | None = None


class Rule(Shape):
    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: list[str] | None = None


class Selector(Shape):
    match_labels: dict[str, str] | None = None
    match_expressions: list[Rule] | None = None


class Rolling(Shape):
    max_surge: int | str | None = None
    max_unavailable: int | str | None = None


class Strategy(Shape):
    type: str | None = None
    rolling_update: Rolling | None = None


class WorkloadSpec(Shape):
    replicas: int | None = None
    parallelism: int | None = None
    completions: int | None = None
    backoff_limit: int | None = None
    selector: Selector | None = None
    strategy: Strategy | None = None
    template: Template | None = None


class WorkloadStatus(Shape):
    replicas: int = 0
    start_time: str | None = None
    completion_time: str | None = None
    conditions: list[Condition] | None = None


class Workload(Shape):
    """A Deployment or a Job."""

    spec: WorkloadSpec | None = None
    status: WorkloadStatus | None = None


def check(obj: Object, shape: type[msgspec.Struct]) -> None:
    """Raises a ValueError that says which field has another type."""
    try:
        msgspec.convert(obj, shape)
    except msgspec.ValidationError as error:
        raise ValueError(f"json: cannot unmarshal: {error}") from error


def without_nulls(obj: Any) -> Any:
    """The object without null fields: a server that decodes into structs does not see them."""
    if isinstance(obj, dict):
        return {key: without_nulls(value) for key, value in obj.items() if value is not None}
    return [without_nulls(item) for item in obj] if isinstance(obj, list) else obj
