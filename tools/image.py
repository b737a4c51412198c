"""`make image`: a container image in .build/image.tar, without docker.

Two layers: Debian 12 with its Python 3.11, made once by debootstrap and kept in the user's cache folder, and gpushare
with what it needs to run, by the lock's hashes. It is started once before it is written. Needs root and debootstrap;
`docker build .` makes the same from the Dockerfile.
"""

import hashlib
import json
import os
import platform
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import gpushare
from tools import archive, runtime_lock
from tools.make import ROOT, Step, StepFailed

SUITE, PYTHON = "bookworm", "3.11"
OTHER_WAY = f"docker build -t gpushare:{gpushare.__version__} ."
MOUNTED = ("dev", "proc", "run", "sys", "tmp")  # empty in an image: the runtime mounts them
NOT_NEEDED = (  # of no use in a container, or of another content each time
    "usr/share/doc", "usr/share/info", "usr/share/locale", "usr/share/man", "var/cache", "var/lib/apt/lists", "var/log",
)  # fmt: skip
OF_THIS_MACHINE = ("etc/hostname", "etc/resolv.conf", "etc/machine-id", "etc/.pwd.lock")
PACKAGES = f"usr/local/lib/python{PYTHON}/dist-packages"
COMMAND = "usr/local/bin/gpushare"
SCRIPT = "#!/usr/bin/python3\nimport sys\n\nfrom gpushare.cli import main\n\nsys.exit(main())\n"
# Files in an image have no time, so what Python compiled must not depend on it.
COMPILE = ("python3", "-m", "compileall", "-q", "-f", "--invalidation-mode", "unchecked-hash")
SETTINGS: dict[str, Any] = {
    "User": "65532:65532",
    "Entrypoint": [f"/{COMMAND}"],
    "Env": [
        "PATH=/usr/local/bin:/usr/bin:/bin",
        "HOME=/",
        "LANG=C.UTF-8",
        "PYTHONDONTWRITEBYTECODE=1",
        "PYTHONUNBUFFERED=1",
    ],
}


class Machine(NamedTuple):
    docker: str
    wheels: str


MACHINES = {"x86_64": Machine("amd64", "x86_64"), "aarch64": Machine("arm64", "aarch64")}


def main(root: Path = ROOT) -> int:
    machine = MACHINES.get(platform.machine())
    if machine is None:
        made_for = ", ".join(MACHINES)
        print(
            f"error: no image for {platform.machine()}\n  why: it is made for {made_for}\n  try: {OTHER_WAY}",
            file=sys.stderr,
        )
        return 2
    out = root / ".build" / "image.tar"
    tag = f"gpushare:{gpushare.__version__}"
    try:
        base = base_layer(cache_folder(), root)
        with Step(root, "gpushare layer", "image") as step, tempfile.TemporaryDirectory(prefix="gpushare-") as place:
            top = gpushare_layer(Path(place), base, machine, step)
            archive.docker_archive(out, tag, [base, top], SETTINGS, machine.docker)
    except StepFailed:
        return 1
    print(f"{out.relative_to(root)}: {tag}, {out.stat().st_size / 1e6:.0f} MB")
    return 0


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpushare" / "image"


def base_layer(cache: Path, root: Path) -> Path:
    """From the cache, unless what would be made is another one by now."""
    recipe = json.dumps([SUITE, PYTHON, MOUNTED, NOT_NEEDED, OF_THIS_MACHINE, COMPILE, platform.machine()])
    made = cache / f"base-{SUITE}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}.tar"
    if not made.exists():
        with Step(root, "base layer", "image-base") as step:
            make_base(made, step)
    return made


def make_base(made: Path, step: Step) -> None:
    if os.geteuid() != 0:
        raise StepFailed("only root can make it", f"sudo make image, or {OTHER_WAY}")
    if shutil.which("debootstrap") is None:
        raise StepFailed("debootstrap is not installed", f"apt install debootstrap, or {OTHER_WAY}")
    made.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="base-", dir=made.parent) as place:
        tree, layer = Path(place) / "tree", Path(place) / "layer.tar"
        _run(step, "debootstrap", "--variant=minbase", "--include=python3", SUITE, str(tree))
        _run(step, "chroot", str(tree), *COMPILE, f"/usr/lib/python{PYTHON}", "/usr/lib/python3/dist-packages")
        clean(tree)
        archive.layer(tree, layer, leave_out=MOUNTED)
        layer.rename(made)


def clean(tree: Path) -> None:
    for name in NOT_NEEDED:
        if (tree / name).exists():
            shutil.rmtree(tree / name)
            (tree / name).mkdir()
    for name in OF_THIS_MACHINE:
        (tree / name).unlink(missing_ok=True)
    for backup in (*(tree / "etc").glob("*-"), *(tree / "var/lib/dpkg").glob("*-old")):
        backup.unlink()


def gpushare_layer(place: Path, base: Path, machine: Machine, step: Step) -> Path:
    """Put into a copy of the base, so that it is compiled and tried by the Python that will run it."""
    tree = place / "tree"
    tree.mkdir()
    _run(step, "tar", "-xf", str(base), "-C", str(tree))
    install(place, tree / PACKAGES, machine, step)
    (tree / COMMAND).write_text(SCRIPT)
    (tree / COMMAND).chmod(0o755)
    _run(step, "chroot", str(tree), *COMPILE, f"/{PACKAGES}")
    _run(step, "chroot", str(tree), f"/{COMMAND}", "extender", "--help")
    archive.layer(tree, place / "gpushare.tar", folders=(PACKAGES, COMMAND))
    return place / "gpushare.tar"


def install(place: Path, packages: Path, machine: Machine, step: Step) -> None:
    """By this Python's pip for the image's Python: wheels only, so nothing is compiled and no compiler is needed."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    wanted = place / "requirements.txt"
    names = runtime_lock.runtime_names((ROOT / "pyproject.toml").read_text("utf-8"))
    wanted.write_text(runtime_lock.part((ROOT / "requirements.lock").read_text("utf-8"), names))
    platforms = [
        f"--platform={kind}_{machine.wheels}" for kind in ("manylinux2014", "manylinux_2_17", "manylinux_2_28")
    ]
    _run(
        step, *pip, "install", "--progress-bar=off", "--no-compile", "--only-binary=:all:", "--require-hashes",
        f"--python-version={PYTHON}", "--implementation=cp", *platforms, f"--target={packages}", "-r", str(wanted),
    )  # fmt: skip
    shutil.rmtree(packages / "bin", ignore_errors=True)
    _run(step, *pip, "wheel", "--no-deps", "--no-build-isolation", f"--wheel-dir={place}", str(ROOT))
    for wheel in place.glob("gpushare-*.whl"):
        with zipfile.ZipFile(wheel) as content:
            content.extractall(packages)


def _run(step: Step, *command: str) -> None:
    code, text = step.run(*command)
    if code:
        lines = [line for line in text.splitlines() if line.strip()] or [f"exit code {code}"]
        raise StepFailed(f"{Path(command[0]).name}: {lines[-1].strip()}", f"again with a network, or {OTHER_WAY}")


if __name__ == "__main__":
    sys.exit(main())
