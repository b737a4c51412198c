"""What the bodies of all answers share: camel-case keys, amounts in MiB, and names that may be hidden.

Pure.
"""

from collections.abc import Callable

import msgspec

from gpushare.core.facts import units
from gpushare.core.facts.model import PodFacts, Unit
from gpushare.dashboard.allowed import Allowed, is_allowed
from gpushare.view import remarks

OF_ANOTHER = "a pod of another namespace"

Number = Callable[[str], int]
"""How the stream calls the pod of a uid: a number without a meaning."""


class Body(msgspec.Struct, rename="camel"):
    """A part of an answer. What is None is sent as null: it is unknown, or its reader may not see it."""


def mib(unit: Unit) -> int:
    """MiB in one unit of a node."""
    return units.BYTES_IN[unit] >> 20


def names(namespace: str, name: str, allowed: Allowed) -> tuple[str | None, str | None]:
    """Namespace and name of a pod, if they may be seen."""
    return (namespace, name) if is_allowed(allowed, namespace) else (None, None)


def in_words(allowed: Allowed) -> remarks.Named:
    """How sentences name a pod."""

    def named(pod: PodFacts) -> str:
        return remarks.pod_name(pod) if is_allowed(allowed, pod.namespace) else OF_ANOTHER

    return named
