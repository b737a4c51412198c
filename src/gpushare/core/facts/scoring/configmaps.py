"""KETI's policy ConfigMaps: what is written there becomes `Settings`, or a list of what is wrong.

Pure. `gpu-scheduler-configmap` has two keys in KETI's first version and more in later ones, `gpu-scheduler-policy` has
eleven. All keys are read in both, and keys of the second win. What is not understood changes nothing: one bad key
refuses all of it, because half of a policy is one that nobody wrote. A key that is not written has KETI's default, that
of the longer ConfigMap as soon as it exists.
"""

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from gpushare.core.facts import names, units
from gpushare.core.facts.scoring.settings import KETI_LONG, KETI_SHORT, NEUTRAL, Settings

WEIGHTS = "node-gpu-score-weight"
NVLINK = "nvlink-weight-percentage"
PREFER = "gpu-allocate-prefer"
MULTI_NODE = "multi-node-allocation-permit"
SWITCHES = {
    "node-reservation-permit": "reservation",
    "pod-re-schedule-permit": "reschedules",
    "avoid-nvlink-one-gpu": "avoids_nvlink",
    MULTI_NODE: "multi_node",
    "non-gpu-node-prefer": "prefers_other_nodes",
    "multi-gpu-node-prefer": "prefers_many_gpus",
    "least-score-node-prefer": "lowest_first",
    "avoid-high-score-node": "second_best",
}
"""Keys that are true or false, and what they are called in `Settings`."""

KEYS = (WEIGHTS, NVLINK, PREFER, *SWITCHES)
MOST_WEIGHT, MOST_PERCENT = 1000, 1000
MOST_PROBLEMS = 8  # that are told; of more the number is told
LONGEST_KEY = 64  # characters; a longer one is not compared with those that there are

BAD_VALUE = "{key} is {written}, and may be {allowed}"
NO_KEY = '"{written}" is no key of the policy'
MEANT = "{problem}; {key} is one"
NOT_A_MAP = "{name} has no keys and values"
MORE = "{count} more keys are wrong"

_WEIGHTS = "two numbers from 0 to 1000 that are not both 0, such as 0.4:0.6 or 0.4 0.6"
_PERCENT = "a whole number from 0 to 1000"
_PREFER = "spread or binpack"
_SWITCH = "true or false"

_TWO = re.compile(r"(\d{1,4}(?:\.\d{1,9})?|\.\d{1,9})(?:\s*:\s*|\s+)(\d{1,4}(?:\.\d{1,9})?|\.\d{1,9})", re.ASCII)
_WHOLE = re.compile(r"\d{1,4}", re.ASCII)
_TRUE = ("1", "t", "T", "TRUE", "true", "True")  # what Go's ParseBool takes, which KETI reads them with
_FALSE = ("0", "f", "F", "FALSE", "false", "False")

Fields = dict[str, Any]  # of `Settings`


class Problem(NamedTuple):
    """What is wrong with one key of a ConfigMap."""

    config_map: str
    sentence: str


def read(maps: Mapping[str, object]) -> Settings | list[Problem]:
    """The settings that these ConfigMaps, by name, ask for; or what is wrong with them. Others than KETI's mean
    nothing."""
    known = [(name, maps[name]) for name in names.POLICY_CONFIGMAPS if name in maps]
    fields: Fields = {}
    bad: list[tuple[str, object, object]] = []  # ConfigMap, key, value
    for name, data in known:
        entries: Mapping[object, object] = data if isinstance(data, Mapping) else {}
        if data is not None and not isinstance(data, Mapping):  # one without data is written as None
            return [Problem(name, NOT_A_MAP.format(name=name))]
        for key, value in entries.items():
            found = _field(key, value)
            if found is None:
                bad.append((name, key, value))
            else:
                fields |= found
    if bad:
        return _told(bad)
    if not known:
        return NEUTRAL
    base = KETI_LONG if names.POLICY_CONFIGMAPS[-1] in maps else KETI_SHORT
    return msgspec.structs.replace(base, **fields)


def settings_in_words(settings: Settings) -> dict[str, str]:
    """The settings with KETI's keys and words, as a ConfigMap would have them. Weights that the placing policy itself
    decides are left out."""
    words = {}
    if settings.node_weight is not None and settings.gpu_weight is not None:
        words[WEIGHTS] = f"{settings.node_weight:g}:{settings.gpu_weight:g}"
    words |= {NVLINK: str(settings.nvlink_percent), PREFER: settings.prefer}
    return words | {key: "true" if getattr(settings, field) else "false" for key, field in SWITCHES.items()}


def in_one_line(settings: Settings) -> str:
    return ", ".join(f"{key}={value}" for key, value in settings_in_words(settings).items())


def _field(key: object, value: object) -> Fields | None:
    """What one key says; None if it is unknown, or its value is bad."""
    reader = _READERS.get(key) if isinstance(key, str) else None
    return reader[0](value.strip()) if reader is not None and isinstance(value, str) else None


def _told(bad: list[tuple[str, object, object]]) -> list[Problem]:
    """One sentence for each bad key, and the number of the rest: there may be thousands."""
    told = len(bad) if len(bad) <= MOST_PROBLEMS else MOST_PROBLEMS - 1
    problems = [Problem(name, _sentence(key, value)) for name, key, value in bad[:told]]
    if told < len(bad):
        problems.append(Problem(bad[told][0], MORE.format(count=len(bad) - told)))
    return problems


def _sentence(key: object, value: object) -> str:
    if isinstance(key, str) and key in _READERS:
        return BAD_VALUE.format(key=key, written=units.quoted(str(value)), allowed=_READERS[key][1])
    text = str(key)
    problem = NO_KEY.format(written=units.short(text, LONGEST_KEY))
    near = difflib.get_close_matches(text, KEYS, 1, cutoff=0.75) if len(text) <= LONGEST_KEY else []
    return MEANT.format(problem=problem, key=near[0]) if near else problem


def _weights(text: str) -> Fields | None:
    match = _TWO.fullmatch(text)
    if match is None:
        return None
    node, gpu = float(match[1]), float(match[2])
    return {"node_weight": node, "gpu_weight": gpu} if node + gpu > 0 and max(node, gpu) <= MOST_WEIGHT else None


def _percent(text: str) -> Fields | None:
    return {"nvlink_percent": int(text)} if _WHOLE.fullmatch(text) and int(text) <= MOST_PERCENT else None


def _prefer(text: str) -> Fields | None:
    return {"prefer": text} if text in ("spread", "binpack") else None


def _switch(field: str) -> Callable[[str], Fields | None]:
    return lambda text: {field: text in _TRUE} if text in (*_TRUE, *_FALSE) else None


_READERS: dict[str, tuple[Callable[[str], Fields | None], str]] = {
    WEIGHTS: (_weights, _WEIGHTS),
    NVLINK: (_percent, _PERCENT),
    PREFER: (_prefer, _PREFER),
    **{key: (_switch(field), _SWITCH) for key, field in SWITCHES.items()},
}
"""How each key is read, and what it may be."""
