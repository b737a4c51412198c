"""The files of the browser's part that are ours, and which of them the first page loads."""

import gzip
import re
from pathlib import Path

from gpushare import dashboard

FOLDER = Path(dashboard.__file__).parent / "static"
IMPORT = re.compile(r"(?:^import\b[^;]*?from|^export\b[^;]*?from|^import) '(\.[^']+)'", re.MULTILINE)


def scripts() -> list[Path]:
    return sorted((FOLDER / "js").rglob("*.js"))


def styles() -> list[Path]:
    return sorted(FOLDER.glob("*.css"))


def of_first_view() -> set[Path]:
    """What the overview needs, ours only."""
    found: set[Path] = set(styles())
    todo = [FOLDER / "js" / "main.js", FOLDER / "js" / "pages" / "overview.js"]
    while todo:
        path = todo.pop().resolve()
        if path in found or path.parent.name == "vendor":
            continue
        found.add(path)
        todo += [path.parent / name for name in IMPORT.findall(path.read_text("utf-8"))]
    return found


def packed(paths: set[Path]) -> int:
    """Bytes that go over the wire for these files."""
    return sum(len(gzip.compress(path.read_bytes(), mtime=0)) for path in paths)
