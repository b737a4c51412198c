"""The parts of Kubernetes objects that decisions read, and nothing else.

Decoded by msgspec straight from the API server's bytes: what is not named here is skipped, which is why a list of
5,000 pods costs 16 MB and not 1 GB. Every list and map may be `null` on the wire (bookmarks carry
`"containers": null`), so every field has a default and none is trusted to be there.
"""

import msgspec

Quantity = str | int | float  # the API server writes strings; hand-written JSON may not
FINISHED = ("Succeeded", "Failed")  # phases of pods whose containers have ended


class Struct(msgspec.Struct, rename="camel", gc=False, omit_defaults=True):
    """Camel-case keys, no cycle collector: these hold strings, numbers and each other, never a cycle."""


class Frozen(msgspec.Struct, frozen=True, rename="camel", gc=False, omit_defaults=True):
    """The same for what is kept and compared by value."""


class OwnerReference(Struct):
    kind: str = ""
    uid: str = ""
    controller: bool | None = None


class Metadata(Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None

    @property
    def controller(self) -> str:
        """The uid of what would make a new one if this were gone; empty: nothing would. Static pods have their node as
        controller, which makes none."""
        owners = self.owner_references or ()
        return next((owner.uid for owner in owners if owner.controller and owner.kind != "Node"), "")

    @property
    def comes_with_node(self) -> bool:
        """Of a DaemonSet, or a static pod: it is there because its node is."""
        return any(owner.controller and owner.kind in ("DaemonSet", "Node") for owner in self.owner_references or ())


class ResourceNeeds(Struct):
    limits: dict[str, Quantity] | None = None
    requests: dict[str, Quantity] | None = None


class FieldRef(Struct):
    field_path: str = ""


class EnvSource(Struct):
    field_ref: FieldRef | None = None


class EnvVar(Struct):
    name: str = ""
    value_from: EnvSource | None = None


class VolumeMount(Struct):
    mount_path: str = ""
    name: str = ""


class Container(Struct):
    name: str = ""
    restart_policy: str | None = None
    resources: ResourceNeeds | None = None
    env: list[EnvVar] | None = None
    volume_mounts: list[VolumeMount] | None = None


class HostPath(Struct):
    path: str = ""


class Volume(Struct):
    name: str = ""
    host_path: HostPath | None = None
    persistent_volume_claim: dict[str, msgspec.Raw] | None = None
    ephemeral: dict[str, msgspec.Raw] | None = None


class Taint(Frozen, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""

    def __str__(self) -> str:
        """As `kubectl taint` writes it."""
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class Toleration(Frozen, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""

    def covers(self, taint: Taint) -> bool:
        """An empty key is any key, an empty effect any effect, no operator `Equal`."""
        if (self.effect and self.effect != taint.effect) or (self.key and self.key != taint.key):
            return False
        return self.operator == "Exists" or (self.operator in ("", "Equal") and self.value == taint.value)


class Expression(Frozen, frozen=True):
    """One condition on a label of a node, or on its name. What it means is in `affinity`."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class Term(Frozen, frozen=True):
    """Conditions that must all be met."""

    match_expressions: tuple[Expression, ...] | None = None
    match_fields: tuple[Expression, ...] | None = None


class NodeSelector(Struct):
    node_selector_terms: tuple[Term, ...] | None = None


class PreferredTerm(Frozen, frozen=True):
    weight: int = 0
    preference: Term = Term()


class NodeAffinity(Struct):
    required: NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)
    preferred: tuple[PreferredTerm, ...] | None = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=None
    )


class Affinity(Struct):
    node_affinity: NodeAffinity | None = None


class PodSpec(Struct):
    node_name: str | None = None
    scheduler_name: str | None = None
    priority: int | None = None
    preemption_policy: str | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    volumes: list[Volume] | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    overhead: dict[str, Quantity] | None = None  # that its runtime class adds

    @property
    def required_terms(self) -> tuple[Term, ...] | None:
        """The terms of the required node affinity, one of which must be met; None: there is none."""
        affinity = self.affinity.node_affinity if self.affinity else None
        if affinity is None or affinity.required is None:
            return None
        return affinity.required.node_selector_terms or ()

    @property
    def preferred_terms(self) -> tuple[PreferredTerm, ...]:
        affinity = self.affinity.node_affinity if self.affinity else None
        return (affinity.preferred or ()) if affinity is not None else ()


class Condition(Struct):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class PodStatus(Struct):
    phase: str | None = None
    reason: str | None = None
    message: str | None = None
    nominated_node_name: str | None = None
    conditions: list[Condition] | None = None


class Pod(Struct):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class NodeInfo(Struct):
    kubelet_version: str = ""


class NodeStatus(Struct):
    capacity: dict[str, Quantity] | None = None
    allocatable: dict[str, Quantity] | None = None
    node_info: NodeInfo | None = None

    @property
    def kubelet_version(self) -> str:
        return self.node_info.kubelet_version if self.node_info is not None else ""


class NodeSpec(Struct):
    unschedulable: bool = False
    taints: tuple[Taint, ...] | None = None


class Node(Struct):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)


class ConfigMap(Struct):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    data: dict[str, str] | None = None


class PriorityClass(Struct):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    value: int = 0
    preemption_policy: str = "PreemptLowerPriority"
