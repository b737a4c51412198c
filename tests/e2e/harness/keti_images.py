"""The images of deploy/keti that are not ours, under their own names: kube-scheduler, InfluxDB and KETI's nbody.

kube-scheduler is the program that the other tests use. InfluxDB is Debian's, on the layer that our own image has below.
nbody is busybox, with a program of that name that prints what it sees and ends.
"""

import platform
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.e2e.harness import binaries, images
from tools import archive, image, make

SCHEDULER = f"registry.k8s.io/kube-scheduler:{binaries.VERSION}"
INFLUX = "docker.io/library/influxdb:1.8.10"
NBODY = "docker.io/seedjeffwan/nbody:cuda-10.1"
PRINTS = '#!/bin/sh\nenv\ncat /proc/self/mounts\necho nbody "$@"\n'
DATA = "/var/lib/influxdb"  # where the image of InfluxDB's makers has it
INFLUX_ENV = [
    "PATH=/usr/bin:/bin", f"INFLUXDB_META_DIR={DATA}/meta", f"INFLUXDB_DATA_DIR={DATA}/data",
    f"INFLUXDB_DATA_WAL_DIR={DATA}/wal",
]  # fmt: skip


def made(folder: Path) -> list[Path]:
    """An archive for each."""
    folder.mkdir(parents=True)
    base = image.base_layer(image.cache_folder(), make.ROOT)
    busybox = images.busybox_layer(folder / "busybox")
    return [
        scheduler(folder),
        _archive(folder, "influx", INFLUX, [base], {"usr/bin/influxd": binaries.monitoring("influxd")},
                 {"Env": INFLUX_ENV, "Cmd": ["influxd", "-config", "/dev/null"]}),
        _archive(folder, "nbody", NBODY, [busybox], {"bin/nbody": PRINTS}, {"Env": ["PATH=/bin"]}),
    ]  # fmt: skip


def scheduler(folder: Path, name: str = SCHEDULER, version: str = binaries.VERSION) -> Path:
    """Only kube-scheduler, as the image of its makers has it."""
    programs = {"bin/kube-scheduler": binaries.program("kube-scheduler", version)}
    settings = {"Env": ["PATH=/bin"], "Entrypoint": ["kube-scheduler"]}
    return _archive(folder, f"scheduler-{version}", name, [], programs, settings)


def _archive(
    folder: Path, name: str, tag: str, below: list[Path], programs: Mapping[str, Path | str], settings: dict[str, Any]
) -> Path:
    """These programs above these layers."""
    tree = folder / name
    for path, program in programs.items():
        (tree / path).parent.mkdir(parents=True)
        if isinstance(program, Path):
            shutil.copy(program, tree / path)
        else:
            (tree / path).write_text(program)
        (tree / path).chmod(0o755)
    archive.layer(tree, folder / f"{name}-layer.tar", folders=programs)
    out, machine = folder / f"{name}.tar", image.MACHINES[platform.machine()].docker
    archive.docker_archive(out, tag, [*below, folder / f"{name}-layer.tar"], settings, machine)
    return out
