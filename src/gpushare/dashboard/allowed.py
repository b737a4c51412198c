"""What a user may see of pods. Whoever may not list the pods of a namespace never gets a name of one."""

Allowed = frozenset[str] | None
"""Namespaces whose pods may be read; None: all."""


def is_allowed(allowed: Allowed, namespace: str) -> bool:
    return allowed is None or namespace in allowed
