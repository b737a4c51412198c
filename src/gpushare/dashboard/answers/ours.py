"""What is read of gpushare itself, besides the snapshot: its own pods, its events, and ClusterPolicies.

Pure. Our pods are known by the label that all manifests of deploy/ have, and each part by the word that its container
starts with.
"""

import msgspec

from gpushare.core.facts import objects
from gpushare.view.why import pod_details

EXTENDER, NODE_PART = "extender", "node"


class OurContainer(objects.Struct):
    name: str = ""
    image: str = ""
    args: list[str] | None = None


class OurSpec(objects.Struct):
    node_name: str | None = None
    containers: list[OurContainer] | None = None


class OurPod(objects.Struct):
    metadata: objects.Metadata = msgspec.field(default_factory=objects.Metadata)
    spec: OurSpec = msgspec.field(default_factory=OurSpec)
    status: objects.PodStatus = msgspec.field(default_factory=objects.PodStatus)

    @property
    def ready(self) -> bool:
        return any(one.type == "Ready" and one.status == "True" for one in self.status.conditions or ())


class About(objects.Struct):
    kind: str = ""
    namespace: str = ""
    name: str = ""


class Event(pod_details.Event):
    involved_object: About = msgspec.field(default_factory=About)
    count: int | None = None

    @property
    def is_ours(self) -> bool:
        return pod_details.last_of_ours([self]) is not None


class PolicyStatus(objects.Struct):
    state: str = ""
    conditions: list[objects.Condition] | None = None


class PolicyObject(objects.Struct):
    metadata: objects.Metadata = msgspec.field(default_factory=objects.Metadata)
    status: PolicyStatus = msgspec.field(default_factory=PolicyStatus)


class Seen(msgspec.Struct, frozen=True):
    """None: it could not be read."""

    pods: list[OurPod] | None = None
    events: list[Event] | None = None
    policies: list[PolicyObject] | None = None


def running(pod: OurPod, part: str) -> OurContainer | None:
    """The container of a pod that runs a part of gpushare; None also if the pod has ended."""
    if pod.status.phase in objects.FINISHED:
        return None
    return next((one for one in pod.spec.containers or () if (one.args or [""])[0] == part), None)


def option(container: OurContainer, name: str) -> str:
    """The value of an option of the command line; empty: it is not given."""
    args = container.args or []
    for place, word in enumerate(args):
        if word.startswith(f"{name}="):
            return word.removeprefix(f"{name}=")
        if word == name and place + 1 < len(args):
            return args[place + 1]
    return ""


def version(image: str) -> str:
    """The tag of an image; empty if it has none."""
    name = image.partition("@")[0].rpartition("/")[2]
    return name.partition(":")[2]
