"""Where the config comes from: one file, or one of a folder (a mounted ConfigMap) that the node's label chooses.

Read again and compared by content: Kubernetes replaces a ConfigMap's files through a symbolic link, and editors replace
whole files, so no watch on a file would stay. NVIDIA's config manager compares links, and misses a changed content.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from gpushare.node.nvidia.rules import choice, settings
from gpushare.node.nvidia.rules.settings import Settings
from gpushare.obs.errors import UserError

LARGEST: Final = 1 << 20  # bytes, as of a ConfigMap
MOST_ALIASES: Final = 20
HIDDEN: Final = "."  # Kubernetes' own links in a mounted ConfigMap begin so
UNREADABLE: Final = "the config {path} cannot be read"
EMPTY: Final = "(empty)"


class Places(NamedTuple):
    """Both empty: no config. `fallbacks`: used if neither the label nor `default` names one of `folder`."""

    file: str = ""
    folder: str = ""
    default: str = ""
    fallbacks: tuple[str, ...] = ("named", "single")


class Found(NamedTuple):
    name: str
    text: str


class _Loader(yaml.SafeLoader):
    """Refuses aliases of aliases of aliases: a few lines of them can fill any memory."""

    aliases = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self.aliases += self.check_event(yaml.AliasEvent)
        if self.aliases > MOST_ALIASES:
            raise yaml.YAMLError(f"it has more than {MOST_ALIASES} aliases (*name)")
        return super().compose_node(parent, index)


def read(places: Places, label: str) -> Found:
    """The config for a node with that label; without one it is empty. Raises UserError."""
    if places.file:
        return Found(Path(places.file).name, _read(Path(places.file)))
    if not places.folder:
        return Found(EMPTY, "")
    folder = Path(places.folder)
    try:
        configs = sorted(path.name for path in folder.iterdir() if not path.name.startswith(HIDDEN))
    except OSError as error:
        raise _unreadable(folder, error) from None
    name = choice.choose(configs, label, places.default, places.fallbacks)
    return Found(EMPTY, "") if name is None else Found(name, _read(folder / name))


def settle(found: Found, given: Mapping[str, str], environment: Mapping[str, str]) -> Settings:
    """What is in force with it. Raises UserError."""
    try:
        data = yaml.load(found.text, _Loader)
    except (yaml.YAMLError, ValueError, RecursionError, LookupError, AttributeError) as error:  # PyYAML's for odd tags
        why = f"{getattr(error, 'problem', None) or error}"[:200]
        mark = getattr(error, "problem_mark", None)
        line = f" in line {mark.line + 1}" if mark is not None else ""
        raise UserError(f"the config {found.name} is not YAML", f"{why}{line}", "correct it") from None
    return settings.settle(data, given, environment)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise UserError(UNREADABLE.format(path=path), f"it has more than {LARGEST:,} bytes", "a smaller one")
        return content.decode()
    except OSError as error:
        raise _unreadable(path, error) from None
    except UnicodeDecodeError as error:
        raise UserError(UNREADABLE.format(path=path), f"it is not UTF-8: {error.reason}", "correct it") from None


def _unreadable(path: Path, error: OSError) -> UserError:
    return UserError(UNREADABLE.format(path=path), str(error.strerror), "--config-file or --config-dir")
