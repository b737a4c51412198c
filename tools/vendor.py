"""Writes src/gpushare/dashboard/static/vendor again: the libraries of others that the dashboard loads in the browser.

    .venv/bin/python -m tools.vendor

The npm client fetches the packages from wherever it is set up to. Each must have the sha512 below, else nothing is
written. VENDORED.toml says what is there and the sha256 of every file, and a test compares it with the files.
To take a newer version: change version and sha512 here (`npm view NAME dist.integrity`), run, commit.
"""

import base64
import hashlib
import io
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).resolve().parent.parent / "src" / "gpushare" / "dashboard" / "static" / "vendor"
LIST = "VENDORED.toml"
HEAD = "# Written by tools/vendor.py. Libraries of others as published, but for what that file changes.\n"
SOURCE_MAP = re.compile(rb"\n?//# sourceMappingURL=\S+\n*$")


class Package(NamedTuple):
    """One npm package, and which of its files become which of ours."""

    name: str
    version: str
    licence: str
    sha512: str
    files: Mapping[str, str]


PACKAGES = (
    Package(
        "preact",
        "11.2.0",
        "MIT",
        "/HfHI/7N84e6GrWBJ3J280z3mLaRJiDcSvj/A+y/4AbLnND/1UlGHe1sR6oYuTGwId0nP7dqDU9OnLxMPZ7xBg==",
        {"dist/preact.mjs": "preact.js", "hooks/dist/hooks.mjs": "hooks.js", "LICENSE": "preact.LICENSE"},
    ),
    Package(
        "htm",
        "3.1.1",
        "Apache-2.0",
        "983Vyg8NwUE7JkZ6NmOqpCZ+sh1bKv2iYTlUkzlWmA5JD2acKoxd4KVxbMmxX/85mtfdnDmTFoNKcg5DGAvxNQ==",
        {"dist/htm.mjs": "htm.js", "LICENSE": "htm.LICENSE"},
    ),
    Package(
        "uplot",
        "1.6.32",
        "MIT",
        "KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw==",
        {
            "dist/uPlot.iife.min.js": "uPlot.iife.min.js",
            "dist/uPlot.min.css": "uPlot.min.css",
            "LICENSE": "uPlot.LICENSE",
        },
    ),
)


def fetched(package: Package) -> bytes:
    """The package as the npm client gets it."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", "--silent", "--pack-destination", folder, f"{package.name}@{package.version}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return next(Path(folder).glob("*.tgz")).read_bytes()


def checked(package: Package, tarball: bytes) -> bytes:
    found = base64.b64encode(hashlib.sha512(tarball).digest()).decode()
    if found != package.sha512:
        raise SystemExit(
            f"{package.name} {package.version} has the sha512 {found}, expected {package.sha512}: nothing was written"
        )
    return tarball


def contents(package: Package, tarball: bytes) -> dict[str, bytes]:
    """Our files of this package by their names here."""
    files = {}
    with tarfile.open(fileobj=io.BytesIO(tarball)) as archive:
        for member in archive:
            ours = package.files.get(member.name.partition("/")[2])
            if ours and (opened := archive.extractfile(member)):
                files[ours] = adapted(opened.read())
    if missing := set(package.files.values()) - set(files):
        raise SystemExit(f"{package.name} {package.version} has no longer what becomes {', '.join(sorted(missing))}")
    return files


def adapted(content: bytes) -> bytes:
    """The file as a page loads it that forbids inline scripts, and with them import maps: a bare name becomes a file.

    Source maps are not kept; without their address no browser asks for them.
    """
    return SOURCE_MAP.sub(b"\n", content.replace(b'from"preact"', b'from"./preact.js"'))


def listed(package: Package, files: Mapping[str, bytes]) -> str:
    """What VENDORED.toml says about one package."""
    lines = [
        "[[package]]",
        f'name = "{package.name}"',
        f'version = "{package.version}"',
        f'licence = "{package.licence}"',
        f'sha512 = "{package.sha512}"  # of the npm package',
        "[package.files]  # sha256",
        *(f'"{name}" = "{hashlib.sha256(content).hexdigest()}"' for name, content in sorted(files.items())),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    found = [(package, contents(package, checked(package, fetched(package)))) for package in PACKAGES]
    FOLDER.mkdir(parents=True, exist_ok=True)
    text = HEAD
    for package, files in found:
        text += "\n" + listed(package, files)
        for name, content in files.items():
            (FOLDER / name).write_bytes(content)
            print(f"{package.name} {package.version}: {name}, {len(content)} bytes", file=sys.stderr)
    (FOLDER / LIST).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
