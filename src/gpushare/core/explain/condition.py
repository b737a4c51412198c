"""Our refusals in kube-scheduler's message: did it refuse a pod for GPU memory?

Pure. kube-scheduler writes our refusals into the pod's condition, each with the number of nodes: `2 no single GPU has
7000 MiB free`.
"""

import re
from functools import cache

from gpushare.core.facts import kinds, options, request
from gpushare.core.placement import fit

_REFUSALS = (
    fit.OVER_LIMIT,
    fit.TOO_LARGE, fit.TOO_FEW_GPUS, fit.NO_SINGLE_GPU, fit.NO_HEALTHY_GPU, fit.NO_GPUS_EACH, fit.NO_WHOLE_GPU,
    fit.NO_WHOLE_GPUS, fit.NO_GPUS_FOR, fit.NO_SLOT, fit.NO_SLOTS, fit.NO_SLOTS_FOR, fit.NO_MPS_MEMORY, fit.NO_MPS_PART,
    fit.NO_MPS_GPUS, fit.NO_MPS_PARTS, kinds.NO_MPS.message, kinds.NOT_NVIDIA.message, fit.NO_INIT_GPU,
    fit.COUNTS_OTHERWISE, fit.NO_SHARED_GPU.message,
    fit.ONE_CONTAINER.message, fit.PINS_BY_PLUGIN.message, fit.NEEDS_POLICY.message, fit.NVIDIA_TOO.message,
    fit.SELLS_GPUS.message, fit.PLUGIN_DOWN.message, fit.ONLY_MPS.message, fit.MPS_DOWN.message, fit.RESERVED.message,
    fit.OTHER_NODE.message, fit.JUST_REFUSED.message, fit.STILL_STARTING.message,
    fit.TOO_HARD, kinds.NOT_MEMORY, kinds.NOT_WHOLE, request.NOT_DIVISIBLE, request.BOTH_LIMITS,
    options.UNKNOWN_POLICY, options.UNKNOWN_UNIT, options.NOT_BYTES, options.NOT_PERCENT,
)  # fmt: skip
# As an older extender wrote them: they stand in conditions until kube-scheduler looks at the pod again.
_OLD_REFUSALS = (
    "node(s) that count in {unit}",
    "node(s) that NVIDIA's plugin also hands out",
    "node(s) with a like request under way",
)
_OLD_KEPT = " beside what is kept for a pod whose turn it is"
_PLACEHOLDER = re.compile(r"\\{(\w+)\\}")  # in an escaped template
_VALUES = {"resource": r"[a-z]+\.com/[a-z-]*gpu[a-z-]*", "unit": "[MG]iB", "parts": "[^,.]+", "policies": "[^,.]+",
           "resources": r"\S+ and \S+", "key": "GPU[a-z]+"}  # fmt: skip
_NUMBER = r"\d+"
_NODES = re.compile(r"\d+/\d+ nodes are available: (?P<reasons>.*?)\.(?: |$)")
_BY_TOTALS = tuple(f"Insufficient {resource}" for resource in kinds.BY_RESOURCE)


def refusal_in(message: str) -> str:
    """The first refusal of ours in a message; empty if there is none."""
    match = _ours().search(message)
    return match[1] if match else ""


def only_totals(message: str) -> bool:
    """Whether kube-scheduler's own count of GPU memory is the only reason: each node has too little of it in all."""
    match = _NODES.match(message)
    reasons = [reason.lstrip("0123456789 ") for reason in match["reasons"].split(", ")] if match else []
    return bool(reasons) and all(reason in _BY_TOTALS for reason in reasons)


def _pattern(template: str) -> str:
    with_values = _PLACEHOLDER.sub(lambda match: _VALUES.get(match[1], _NUMBER), re.escape(template))
    return with_values.replace("GPU", "(?:healthy )?GPU", 1)


@cache
def _ours() -> re.Pattern[str]:
    """Made when it is needed: it takes 2 ms, and most commands need none of it."""
    sentences = "|".join(map(_pattern, _REFUSALS + _OLD_REFUSALS))
    kept = "|".join(map(re.escape, (fit.KEPT_FOR_OTHER.removeprefix("{reason}"), _OLD_KEPT)))
    return re.compile(rf"(?:^|\d )((?:{sentences})(?:{kept})?)(?=[.,]|$)")
