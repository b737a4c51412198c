"""What is read of gpushare itself, besides the snapshot: its own pods, its events, and ClusterPolicies.

Pure. The paths are of the API server; whoever reads them passes the bodies, or None where one could not be read. Our
pods are known by the label that all manifests of deploy/ have, and each part by the word that its container starts
with.
"""

from typing import TypeVar

import msgspec

from gpushare.core.facts import objects
from gpushare.view.snapshot import Items
from gpushare.view.why import pod_details

PODS = "/api/v1/pods?labelSelector=app%3Dgpushare"
EVENTS = "/api/v1/events?fieldSelector=type%3DWarning%2CreportingComponent%3Dgpushare"
POLICIES = "/apis/gpushare.io/v1alpha1/clusterpolicies"
EXTENDER, NODE_PART = "extender", "node"

T = TypeVar("T")


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


def seen(pods: bytes | None, events: bytes | None, policies: bytes | None) -> Seen:
    """From the bodies of the three paths. A cluster without the kind ClusterPolicy has none: pass an empty list."""
    return Seen(_decoded(pods, Items[OurPod]), _decoded(events, Items[Event]), _decoded(policies, Items[PolicyObject]))


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


def _decoded(body: bytes | None, kind: type[Items[T]]) -> list[T] | None:
    """An answer that is not as it should be is as unknown as none."""
    if body is None:
        return None
    try:
        return msgspec.json.decode(body, type=kind).items or []
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
