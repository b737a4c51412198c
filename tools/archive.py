"""Layers and docker-archives, written byte for byte the same from the same files.

What `docker save` writes, and `docker load`, `ctr images import` and `skopeo` read. Used by tools/image.py.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any


def layer(tree: Path, out: Path, folders: Iterable[str] = (".",), leave_out: Iterable[str] = ()) -> None:
    """A tar of what lies below these folders of a tree: sorted, without times, owned by the same numbers everywhere.

    Whatever is left out keeps its own folder, empty: /proc and the like are mounted there.
    """
    emptied = {Path(path) for path in leave_out}
    with tarfile.open(out, "w", format=tarfile.GNU_FORMAT) as tar:
        for path in _sorted_below(tree, folders):
            if path.parents and emptied & set(path.parents):
                continue
            entry = tar.gettarinfo(tree / path, arcname=str(path))
            entry.mtime, entry.uname, entry.gname = 0, "", ""
            if entry.isreg():
                with (tree / path).open("rb") as content:
                    tar.addfile(entry, content)
            else:
                tar.addfile(entry)


def docker_archive(out: Path, tag: str, layers: list[Path], settings: Mapping[str, Any], architecture: str) -> None:
    """One image of these layers, bottom first."""
    digests = [_digest(file) for file in layers]
    config = _json(
        {
            "architecture": architecture,
            "os": "linux",
            "created": "1970-01-01T00:00:00Z",
            "config": settings,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
            "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "tools/image.py"} for _ in layers],
        }
    )
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    names = [f"{digest}.tar" for digest in digests]
    with tarfile.open(out, "w", format=tarfile.GNU_FORMAT) as tar:
        _add(tar, "manifest.json", _json([{"Config": config_name, "RepoTags": [tag], "Layers": names}]))
        _add(tar, config_name, config)
        for name, file in zip(names, layers, strict=True):
            with file.open("rb") as content:
                tar.addfile(_entry(name, file.stat().st_size), content)


def _sorted_below(tree: Path, folders: Iterable[str]) -> Iterator[Path]:
    """Relative paths, each folder before what is in it, and those above a given folder too."""
    found: set[Path] = set()
    for folder in folders:
        start = Path(folder)
        found.update(path for path in (start, *start.parents) if path != Path())
        found.update(path.relative_to(tree) for path in (tree / start).rglob("*"))
    return iter(sorted(found))


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _json(content: object) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    tar.addfile(_entry(name, len(content)), io.BytesIO(content))


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, 0o644
    return entry
