"""The flags in kube-scheduler's command, as Go programs read them. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

# Flags that kube-scheduler ignores as soon as it has a configuration file, and where the file says the same.
MOVED: Final[Mapping[str, tuple[tuple[str, ...], type]]] = {
    "kubeconfig": (("clientConnection", "kubeconfig"), str),
    "kube-api-qps": (("clientConnection", "qps"), float),
    "kube-api-burst": (("clientConnection", "burst"), int),
    "kube-api-content-type": (("clientConnection", "contentType"), str),
    "profiling": (("enableProfiling",), bool),
    "contention-profiling": (("enableContentionProfiling",), bool),
}
# The same, but what they mean cannot be said in the file, or not in the same way.
LOST: Final = ("algorithm-provider", "hard-pod-affinity-symmetric-weight", "lock-object-name", "lock-object-namespace",
               "scheduler-name")  # fmt: skip
TRUE, FALSE = ("1", "t", "T", "true", "TRUE", "True"), ("0", "f", "F", "false", "FALSE", "False")


def name(word: str) -> str:
    """The name of a flag, without dashes and value; empty if the word is none."""
    return word.lstrip("-").partition("=")[0].replace("_", "-") if word.startswith("-") else ""


def at(words: Sequence[str], flag: str) -> tuple[int, str] | None:
    """Where the value of a flag is, and the text in front of it in the same word: `--config=FILE`, or `--config FILE`.
    Of several the last one counts."""
    found = None
    for number, word in enumerate(words):
        if name(word) != flag:
            continue
        if "=" in word:
            found = (number, word[: word.index("=") + 1])
        elif number + 1 < len(words):
            found = (number + 1, "")
    return found


def value(words: Sequence[str], flag: str) -> str | None:
    """The value of a flag; None if it is not given. A switch without a value is on."""
    place = at(words, flag)
    if place is None:
        return "" if any(name(word) == flag for word in words) else None
    number, before = place
    text = words[number][len(before) :]
    return "true" if not before and text.startswith("-") else text


def moved(words: Sequence[str]) -> dict[str, Any]:
    """What the file must say, so that these flags still count. Raises ValueError with a flag that is not understood."""
    said: dict[str, Any] = {}
    for flag, (path, kind) in MOVED.items():
        text = value(words, flag)
        if text is None:
            continue
        place = said
        for key in path[:-1]:
            place = place.setdefault(key, {})
        try:
            place[path[-1]] = _read(text, kind)
        except ValueError:
            raise ValueError(f"--{flag}={text}") from None
    return said


def _read(text: str, kind: type) -> str | float | bool:
    if kind is bool:
        if text not in (*TRUE, *FALSE, ""):
            raise ValueError(text)
        return text not in FALSE
    read: str | float = kind(text)
    return int(read) if isinstance(read, float) and read.is_integer() else read
