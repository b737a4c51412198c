"""The images that the real kubelet runs: gpushare's own, made by `make image`, and a small one for everything else.

The small one is busybox. It is also the sandbox of every pod. With the name and the variable of the CUDA image in
examples/ it stands in for that image, so that examples run unchanged.
"""

import fcntl
import os
import platform
import subprocess
import sys
from pathlib import Path

import gpushare
from tests.e2e.harness import binaries
from tests.e2e.harness.cluster import Failed
from tools import archive, image, make

SMALL = "docker.io/library/small:1"
EXAMPLES = "docker.io/nvidia/cuda:12.9.1-base-ubuntu24.04"
PRODUCT = f"docker.io/library/gpushare:{gpushare.__version__}"
LIMIT_SECONDS = 600.0


def small(folder: Path) -> list[Path]:
    """busybox under each of its names; and the same as CUDA images are, which ask for all GPUs by themselves."""
    layer = busybox_layer(folder)
    variables = {SMALL: [], EXAMPLES: ["NVIDIA_VISIBLE_DEVICES=all"]}
    made = []
    for number, (name, more) in enumerate(variables.items()):
        made.append(folder / f"{number}.tar")
        settings = {"Env": ["PATH=/bin", *more], "Cmd": ["sleep", "infinity"]}
        machine = image.MACHINES[platform.machine()].docker
        archive.docker_archive(made[-1], name, [layer], settings, machine)
    return made


def busybox_layer(folder: Path) -> Path:
    """busybox, with a name for each of its programs."""
    tree = folder / "tree" / "bin"
    tree.mkdir(parents=True)
    busybox = tree / "busybox"
    busybox.write_bytes(binaries.packaged("bin/busybox").read_bytes())
    busybox.chmod(0o755)
    for name in subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split():
        if name != busybox.name:
            (tree / name).symlink_to(busybox.name)
    archive.layer(tree.parent, folder / "layer.tar")
    return folder / "layer.tar"


def product(root: Path = make.ROOT) -> Path:
    """What `make image` writes; not again while nothing has changed that goes into it."""
    made, stamp = root / ".build" / "image.tar", root / ".build" / "image.made-from"
    code, shipped = sorted((root / "src").rglob("*.py")), sorted((root / "deploy").rglob("*.yaml"))
    settings = (root / name for name in ("pyproject.toml", "requirements.lock"))
    wanted = make.digest(iter((*code, *shipped, *settings, Path(image.__file__), Path(archive.__file__))))
    with (root / ".build" / "image.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another lane may be at it
        if not (made.exists() and stamp.exists() and stamp.read_text() == wanted):
            stamp.unlink(missing_ok=True)
            _make(root)
            stamp.write_text(wanted)
    return made


def _make(root: Path) -> None:
    """debootstrap, if the layer below has to be made, is the one among our packages."""
    path = f"{binaries.packaged('usr/sbin')}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "DEBOOTSTRAP_DIR": str(binaries.packaged("usr/share/debootstrap"))}
    done = subprocess.run(
        [sys.executable, "-m", "tools.image"],
        cwd=root, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False,
    )  # fmt: skip
    if done.returncode:
        raise Failed(f"make image: exit code {done.returncode}\n{done.stdout}{done.stderr}")
