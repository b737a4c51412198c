"""Pods as they are kept: without what nobody reads, and with equal parts kept once. There may be 25,000 of them.

Pods of one Deployment have equal containers, labels, tolerations and owners. What is left out decides nothing: all
answers made of a slim pod are those made of the whole one.
"""

from typing import Any, TypeVar

import msgspec

from gpushare.core.facts import names, objects, request
from gpushare.core.facts.model import PodFacts, Request
from gpushare.view.why.pod_details import Pod

MOST_PARTS = 50_000  # kept once; if there are more, sharing begins anew: old ones are freed
READ_ENV = (names.VISIBLE_DEVICES, names.MPS_LIMIT)
READ_ANNOTATIONS = ("gpushare.io/", "aliyun.com/", "ALIYUN_COM_")  # how their names begin
OTHER_ANNOTATIONS = frozenset({names.ALLOCATION, *names.SLOT_MEMORY, names.PRIORITY, names.NODE_NAME, names.UUID})
# A part of the API server's answer would keep all of its bytes in memory.
_SOME = {"": msgspec.Raw(b"{}")}

T = TypeVar("T")


class Sharing:
    """Equal parts of many pods, kept once."""

    def __init__(self) -> None:
        self._parts: dict[tuple[str, bytes], Any] = {}
        self._strings: dict[str, str] = {}
        self._requests: dict[Request, Request] = {}

    def pod(self, pod: Pod) -> Pod:
        """The same object, with less in it."""
        meta, spec, status = pod.metadata, pod.spec, pod.status
        meta.namespace = self.string(meta.namespace)
        meta.annotations = _read_annotations(meta.annotations)
        meta.labels = self._once("labels", meta.labels)
        meta.owner_references = self._once("owners", meta.owner_references)
        spec.node_name = self.string(spec.node_name) if spec.node_name else spec.node_name
        spec.scheduler_name = self.string(spec.scheduler_name) if spec.scheduler_name else spec.scheduler_name
        spec.containers = self._once("containers", _slim_containers(spec.containers))
        spec.init_containers = self._once("containers", _slim_containers(spec.init_containers))
        spec.volumes = self._once("volumes", _slim_volumes(spec.volumes))
        spec.node_selector = self._once("labels", spec.node_selector)
        spec.affinity = self._once("affinity", spec.affinity)
        spec.tolerations = self._once("tolerations", spec.tolerations)
        status.phase = self.string(status.phase) if status.phase else status.phase
        status.conditions = self._once("conditions", _without_times(status.conditions))
        status.container_statuses = self._once("statuses", status.container_statuses)
        status.init_container_statuses = self._once("statuses", status.init_container_statuses)
        return pod

    def facts(self, pod: PodFacts) -> PodFacts:
        asked = pod.request
        if isinstance(asked, Request):
            if len(self._requests) >= MOST_PARTS:
                self._requests.clear()
            asked = self._requests.setdefault(asked, asked)
        return request.sharing(pod, asked, pod.rules, self._strings)

    def string(self, text: str) -> str:
        if len(self._strings) >= MOST_PARTS:
            self._strings.clear()
        return self._strings.setdefault(text, text)

    def _once(self, kind: str, part: T) -> T:
        if not part:
            return part
        if len(self._parts) >= MOST_PARTS:
            self._parts.clear()
        found: T = self._parts.setdefault((kind, msgspec.json.encode(part)), part)
        return found


def _read_annotations(written: dict[str, str] | None) -> dict[str, str] | None:
    """The owner's last manifest alone is often longer than the rest of the pod."""
    read = {
        key: value
        for key, value in (written or {}).items()
        if key.startswith(READ_ANNOTATIONS) or key in OTHER_ANNOTATIONS
    }
    return read or None


def _slim_containers(containers: list[objects.Container] | None) -> list[objects.Container] | None:
    for container in containers or ():
        container.env = [entry for entry in container.env or () if entry.name in READ_ENV] or None
        mounts = container.volume_mounts or ()
        container.volume_mounts = [one for one in mounts if names.MPS_PIPE_FOLDER in one.mount_path] or None
    return containers


def _slim_volumes(volumes: list[objects.Volume] | None) -> list[objects.Volume] | None:
    kept = [one for one in volumes or () if one.persistent_volume_claim or one.ephemeral or one.host_path]
    for volume in kept:
        volume.persistent_volume_claim = _SOME if volume.persistent_volume_claim else None
        volume.ephemeral = _SOME if volume.ephemeral else None
    return kept or None


def _without_times(conditions: list[objects.Condition] | None) -> list[objects.Condition] | None:
    """Since when something holds is read of no pod, and differs between all of them."""
    return [
        objects.Condition(one.type, one.status) if one.status == "True" else one for one in conditions or ()
    ] or None
