"""Which of several configs a node uses: by its label, a default, or the first fallback that finds one.

Pure. As NVIDIA's config manager does it, but a label that names no config is an error that the caller can live with.
"""

from collections.abc import Collection, Sequence
from typing import Final

from gpushare.node.nvidia.rules import schema
from gpushare.obs.errors import UserError

LABEL: Final = "nvidia.com/device-plugin.config"
NAMED: Final = "default"
FALLBACKS: Final = ("named", "single", "empty")
MOST_LISTED: Final = 10  # names in one sentence
NO_CONFIG: Final = 'there is no config "{name}"'
NOTHING: Final = "no config is chosen for this node"


def choose(configs: Collection[str], label: str, default: str, fallbacks: Sequence[str]) -> str | None:
    """The name of the config; None: an empty one. Raises UserError."""
    for name, where in ((label, f"label {LABEL}={label}"), (default, f"DEFAULT_CONFIG={default}")):
        if name and name not in configs:
            raise UserError(NO_CONFIG.format(name=name), where, f"one of: {_listed(configs)}")
        if name:
            return name
    for fallback in fallbacks:
        if fallback not in FALLBACKS:
            raise schema.unknown("FALLBACK_STRATEGIES", fallback, FALLBACKS)
        if fallback == "named" and NAMED in configs:
            return NAMED
        if fallback == "single" and len(configs) == 1:
            return next(iter(configs))
        if fallback == "empty":
            return None
    why = f"there are {_listed(configs)}; none is called {NAMED}"
    raise UserError(NOTHING, why, f"kubectl label node NAME {LABEL}=CONFIG, or DEFAULT_CONFIG")


def _listed(configs: Collection[str]) -> str:
    names = sorted(configs)
    more = [f"{len(names) - MOST_LISTED} more"] if len(names) > MOST_LISTED else []
    return ", ".join([*names[:MOST_LISTED], *more]) or "none"
