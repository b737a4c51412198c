"""Links, headings and file paths in the text of a document, and whether what they name exists.

A path is any word that begins with a folder of this repository, as `docs/nodes.md`. In code spans the folders of
`src/gpushare` count too, as `core/facts/names.py`. `*` stands for any name.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "gpushare"

_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"(?<!`)\]\(\s*<?([^)>\s]+)>?[^)]*\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
_HTML_ANCHOR = re.compile(r"<a\s+(?:id|name)=\"([^\"]+)\"")
_PATH = r"(?<![\w/.~$%{{}}@-])(?:{folders})/[\w./*-]*"


def _folders(parent: Path) -> str:
    names = sorted(child.name for child in parent.iterdir() if child.is_dir() and child.name[0] not in "._")
    return "|".join(map(re.escape, names))


_OF_ROOT = re.compile(_PATH.format(folders=_folders(ROOT)))
_OF_PACKAGE = re.compile(_PATH.format(folders=_folders(PACKAGE)))


def links(markdown: str) -> list[str]:
    """Targets of all links that stay in this repository."""
    targets = _LINK.findall(_FENCE.sub("", markdown))
    return [unquote(target) for target in targets if not re.match(r"[a-z]+:", target)]


def anchors(markdown: str) -> set[str]:
    """What `#...` may name: headings the way GitHub spells them, and explicit anchors."""
    prose, slugs = _FENCE.sub("", markdown), set[str]()
    for heading in _HEADING.findall(prose):
        slug = base = _slug(heading)
        number = 0
        while slug in slugs:
            number += 1
            slug = f"{base}-{number}"
        slugs.add(slug)
    return slugs | set(_HTML_ANCHOR.findall(prose))


def _slug(heading: str) -> str:
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def paths(text: str) -> Iterator[str]:
    """File paths that a text names."""
    for span in _CODE.findall(text):
        yield from map(_ending, _OF_PACKAGE.findall(span))
    yield from map(_ending, _OF_ROOT.findall(text))


def _ending(path: str) -> str:
    return path.rstrip(".-")  # the end of a sentence


def is_there(path: str) -> bool:
    """In the repository or in the package; the suffix may be left out, as in `core/facts`."""
    return any(next(folder.glob(path.rstrip("/")), None) is not None for folder in (ROOT, PACKAGE))


def broken_link(document: Path, target: str) -> bool:
    """Whether a link of this document leads nowhere."""
    name, _, anchor = target.partition("#")
    file = (document.parent / name) if name else document
    if not file.exists() or not file.resolve().is_relative_to(ROOT):
        return True
    return bool(anchor) and (file.suffix != ".md" or anchor not in anchors(file.read_text("utf-8")))
