"""Objects as the operator reads them: policies, what it made, and the pods of that.

What it made is compared with what it wants field by field, so each of these keeps all that an apply can write. Kinds
have few top-level fields; a test compares the list here with the manifests.
"""

from typing import Any

import msgspec

from gpushare.core.facts import objects

Object = dict[str, Any]


class Meta(objects.Metadata):
    generation: int = 0
    finalizers: list[str] | None = None


class Policy(objects.Struct):
    """`spec` is decoded by whoever needs it: a policy that cannot be decoded still has a status."""

    metadata: Meta = msgspec.field(default_factory=Meta)
    spec: Object = msgspec.field(default_factory=dict)
    status: Object | None = None

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def uid(self) -> str:
        return self.metadata.uid


class Live(objects.Struct):
    """An object of any kind that the operator makes."""

    metadata: Meta = msgspec.field(default_factory=Meta)
    spec: Any = None
    status: Any = None
    data: Any = None
    type: Any = None
    rules: Any = None
    role_ref: Any = None
    subjects: Any = None
    webhooks: Any = None
    handler: Any = None
    scheduling: Any = None
    value: Any = None
    preemption_policy: Any = None
    description: Any = None
    global_default: Any = None
    automount_service_account_token: Any = None
    image_pull_secrets: Any = None


class Terminated(objects.Struct):
    exit_code: int = 0
    reason: str = ""
    message: str = ""


class Waiting(objects.Struct):
    reason: str = ""
    message: str = ""


class ContainerState(objects.Struct):
    waiting: Waiting | None = None
    terminated: Terminated | None = None


class ContainerStatus(objects.Struct):
    name: str = ""
    image: str = ""
    ready: bool = False
    state: ContainerState = msgspec.field(default_factory=ContainerState)
    last_state: ContainerState = msgspec.field(default_factory=ContainerState)


class PodStatus(objects.Struct):
    phase: str | None = None
    reason: str | None = None
    message: str | None = None
    conditions: list[objects.Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None


class PodSpec(objects.Struct):
    node_name: str | None = None


class Pod(objects.Struct):
    metadata: objects.Metadata = msgspec.field(default_factory=objects.Metadata)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)

    @property
    def ready(self) -> bool:
        return any(found.type == "Ready" and found.status == "True" for found in self.status.conditions or ())
