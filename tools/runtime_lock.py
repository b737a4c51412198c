"""Prints the part of requirements.lock that some packages need; without arguments, what gpushare needs to run.

The lock also has what tests and lint need, and an image must not. Which package wants which stands in the lock itself,
behind "# via". Used by tools/image.py and, before anything is installed, by the Dockerfile: standard library only.
"""

import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def runtime_names(pyproject: str) -> list[str]:
    """The packages gpushare itself names, without their versions."""
    dependencies: list[str] = tomllib.loads(pyproject)["project"]["dependencies"]
    return [re.split(r"[^\w.-]", dependency, maxsplit=1)[0] for dependency in dependencies]


def part(lock: str, roots: Iterable[str]) -> str:
    """The entries of these packages, and of all that is there because of them."""
    entries = {_plain(found[1]): found[0] for found in re.finditer(r"^([\w.-]+)==(?:.*\n)(?:[ #].*\n)*", lock, re.M)}
    wanted = {_plain(root) for root in roots}
    if missing := wanted - entries.keys():
        raise LookupError(f"requirements.lock has no {', '.join(sorted(missing))}")
    grows = True
    while grows:
        needed = {name for name, entry in entries.items() if name not in wanted and wanted & _wanted_by(entry)}
        wanted |= needed
        grows = bool(needed)
    return "".join(entry for name, entry in entries.items() if name in wanted)


def _wanted_by(entry: str) -> set[str]:
    comments = re.findall(r"^ *# +(?:via ?)?(.*)$", entry, re.M)
    return {_plain(comment.split()[0]) for comment in comments if comment.strip()}


def _plain(name: str) -> str:
    """PyYAML and pyyaml, prometheus_client and prometheus-client are the same."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    names = sys.argv[1:] or runtime_names((ROOT / "pyproject.toml").read_text("utf-8"))
    print(part((ROOT / "requirements.lock").read_text("utf-8"), names), end="")
