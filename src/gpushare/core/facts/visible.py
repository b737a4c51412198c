"""How a container learns its GPUs: from an annotation of ours through its env, or from a device plugin.

The admission policy gives each container that asks for GPUs the env NVIDIA_VISIBLE_DEVICES, taken from an annotation of
its own. The binding writes that annotation.
"""

from collections.abc import Sequence

from gpushare.core.facts import names, objects
from gpushare.core.facts.model import Pin, Share

_FIELD = "metadata.annotations['"


def annotation(container: objects.Container) -> str:
    """The annotation of ours that this container's env takes its GPUs from; empty: none."""
    return _taken_from(container, names.VISIBLE_DEVICES, names.VISIBLE_PREFIX)


def is_limited(container: objects.Container) -> bool:
    """Whether its env takes the limits of an MPS client from the annotation that belongs to the one with its GPUs."""
    limit = _taken_from(container, names.MPS_LIMIT, names.MPS_LIMIT_PREFIX)
    return bool(limit) and limit == limits_of(annotation(container))


def limits_of(key: str) -> str:
    """The annotation with the limits of the container whose GPUs are in this one."""
    return names.MPS_LIMIT_PREFIX + key.removeprefix(names.VISIBLE_PREFIX)


def _taken_from(container: objects.Container, name: str, prefix: str) -> str:
    """The annotation that this env entry refers to; empty: none. Of several entries the last counts."""
    for entry in reversed(container.env or ()):
        if entry.name == name:
            path = entry.value_from.field_ref.field_path if entry.value_from and entry.value_from.field_ref else ""
            key = path.removeprefix(_FIELD).removesuffix("']")
            # Only our own group: an env that points elsewhere must not make us write a foreign annotation.
            return key if key.startswith(prefix) and path == f"{_FIELD}{key}']" else ""
    return ""


def pin(shares: Sequence[Share]) -> Pin | None:
    """DIRECT if each container has an annotation of its own, PLUGIN if none has one; None if they disagree."""
    keys = [share.visible for share in shares if share.visible]
    if not keys:
        return Pin.PLUGIN
    # Two containers with one annotation: the admission policy makes no such pod, and they may need different GPUs.
    return Pin.DIRECT if len(keys) == len(shares) == len(set(keys)) else None
