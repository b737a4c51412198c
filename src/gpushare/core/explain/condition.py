"""Our own words in kube-scheduler's: did it refuse a pod for GPU memory?

Pure. kube-scheduler puts what we told it into the pod's condition, counted by node: `2 no single GPU has 7000 MiB
free`.
"""

import re

from gpushare.core.facts import kinds, names, options, request
from gpushare.core.placement import fit

_REFUSALS = (
    fit.OVER_LIMIT,
    fit.TOO_LARGE, fit.TOO_FEW_GPUS, fit.NO_SINGLE_GPU, fit.NO_HEALTHY_GPU, fit.NO_GPUS_EACH, fit.NO_WHOLE_GPU,
    fit.NO_WHOLE_GPUS, fit.NO_GPUS_FOR, fit.NO_INIT_GPU, fit.COUNTS_OTHERWISE, fit.NO_SHARED_GPU.message,
    fit.ONE_CONTAINER.message, fit.PINS_BY_PLUGIN.message, fit.NEEDS_POLICY.message, fit.NVIDIA_TOO.message,
    fit.PLUGIN_DOWN.message, fit.JUST_REFUSED.message, fit.LIKE_UNDER_WAY.message, fit.TOO_HARD, kinds.NOT_MEMORY,
    kinds.NOT_WHOLE, request.NOT_DIVISIBLE, request.BOTH_LIMITS, options.UNKNOWN_POLICY, options.UNKNOWN_UNIT,
)  # fmt: skip
_PLACEHOLDER = re.compile(r"\\{(\w+)\\}")  # of a template, once that is escaped
_VALUES = {"resource": r"aliyun\.com/gpu-\w+", "unit": "[MG]iB", "parts": "[^,.]+", "policies": "[^,.]+",
           "resources": r"\S+ and \S+"}  # fmt: skip
_NUMBER = r"\d+"
_NODES = re.compile(r"\d+/\d+ nodes are available: (?P<reasons>.*?)\.(?: |$)")
_BY_TOTALS = tuple(f"Insufficient {resource}" for resource in (names.GPU_MEM, names.GPU_COUNT))


def refusal_in(message: str) -> str:
    """The first refusal of ours that is quoted; empty if there is none."""
    found = _ours.search(message)
    return found[1] if found else ""


def only_totals(message: str) -> bool:
    """Whether it says nothing but that each node has too little GPU memory in all, which it counts by itself."""
    found = _NODES.match(message)
    reasons = [reason.lstrip("0123456789 ") for reason in found["reasons"].split(", ")] if found else []
    return bool(reasons) and all(reason in _BY_TOTALS for reason in reasons)


def _pattern(template: str) -> str:
    with_values = _PLACEHOLDER.sub(lambda found: _VALUES.get(found[1], _NUMBER), re.escape(template))
    return with_values.replace("GPU", "(?:healthy )?GPU", 1)


_KEPT = re.escape(fit.KEPT_FOR_OTHER.removeprefix("{reason}"))
_ours = re.compile(rf"(?:^|\d )((?:{'|'.join(map(_pattern, _REFUSALS))})(?:{_KEPT})?)(?=[.,]|$)")
