"""One pod with its conditions, containers and events: why it waits, or does not start.

Two small requests read them: a user who may read only their own namespace can make them as well. The rest is pure:
kube-scheduler's last message, gpushare's last event, the container that kubelet could not start.
"""

from collections.abc import Iterable
from urllib.parse import quote as escaped

import msgspec

from gpushare.core.explain.report import Quote
from gpushare.core.facts import intree, names, objects
from gpushare.view import snapshot
from gpushare.view.source import Forbidden, NotFound, Source
from gpushare.view.wording import timestamp

FAILED_SCHEDULING = "FailedScheduling"
GATED = "SchedulingGated"  # the API server's own reason: no scheduler has looked yet


class Waiting(objects.Struct):
    reason: str | None = None
    message: str | None = None


class ContainerState(objects.Struct):
    waiting: Waiting | None = None


class ContainerStatus(objects.Struct):
    name: str = ""
    state: ContainerState | None = None


class PodStatus(objects.PodStatus):
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    start_time: str | None = None


class Pod(intree.Pod):
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class Series(objects.Struct):
    last_observed_time: str | None = None


class EventSource(objects.Struct):
    component: str | None = None


class Event(objects.Struct):
    reason: str | None = None
    message: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    series: Series | None = None
    source: EventSource | None = None
    reporting_component: str | None = None

    @property
    def time(self) -> str:
        """When it was seen last; kube-scheduler counts repeated ones in a series."""
        again = self.series.last_observed_time if self.series else None
        return max(again or "", self.last_timestamp or "", self.event_time or "", key=timestamp)


class _Events(objects.Struct):
    items: list[Event] | None = None


class _Names(objects.Struct):
    items: list[objects.Pod] | None = None


def pod(source: Source, namespace: str, name: str) -> Pod:
    """The pod; NotFound if there is none."""
    path = f"/api/v1/namespaces/{escaped(namespace, safe='')}/pods/{escaped(name, safe='')}"
    return snapshot.decode(source.get(path), Pod, path)


def pods(source: Source, namespace: str) -> list[objects.Pod]:
    """The pods that the user may mean: of all namespaces if they can be read, else of this one, else none."""
    for path in ("/api/v1/pods", f"/api/v1/namespaces/{escaped(namespace, safe='')}/pods"):
        try:
            return snapshot.decode(source.get(path), _Names, path).items or []
        except (Forbidden, NotFound):
            continue
    return []


def events(source: Source, of: objects.Pod) -> list[Event]:
    """The events about a pod; none if they may not be read."""
    selector = f"involvedObject.uid={of.metadata.uid}"
    path = f"/api/v1/namespaces/{escaped(of.metadata.namespace)}/events?fieldSelector={escaped(selector)}"
    try:
        return snapshot.decode(source.get(path), _Events, path).items or []
    except (Forbidden, NotFound):
        return []


def quote(of: objects.Pod, events: Iterable[Event]) -> Quote | None:
    """kube-scheduler's last message about a pod; None if it has not looked at the pod."""
    condition = next((c for c in of.status.conditions or () if c.type == "PodScheduled" and c.status == "False"), None)
    if condition is not None and condition.reason == GATED:
        return None
    tries = sorted(
        (event for event in events if event.reason == FAILED_SCHEDULING), key=lambda event: timestamp(event.time)
    )
    if condition is None and not tries:
        return None
    message = (condition.message if condition is not None else tries[-1].message) or "Unschedulable"
    # The condition keeps the time of the first refusal; that of the last is in the event, if it is still there.
    times = [condition.last_transition_time or ""] if condition is not None else []
    times += [event.time for event in tries[-1:]]
    return Quote(message, max(times, key=timestamp) or None)


def last_of_ours(events: Iterable[Event]) -> Event | None:
    """gpushare's last event about a pod."""
    ours = [event for event in events if names.COMPONENT in (event.reporting_component, _component(event))]
    return max(ours, key=lambda event: timestamp(event.time), default=None)


def not_started(of: Pod) -> tuple[str, str] | None:
    """The first container that kubelet could not start, and its reason."""
    status = of.status
    for container in (*(status.init_container_statuses or ()), *(status.container_statuses or ())):
        waiting = container.state.waiting if container.state else None
        if waiting is not None and waiting.reason and waiting.reason != "PodInitializing":
            return container.name, waiting.reason
    return None


def _component(event: Event) -> str | None:
    return event.source.component if event.source else None
