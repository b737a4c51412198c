"""A stand-in for nvidia-container-runtime: the program that containerd runs for pods with runtimeClassName nvidia.

As the real one it changes the bundle of a container that asks for GPUs (`NVIDIA_VISIBLE_DEVICES`) before runc sees it:
the driver's library of the machine comes in, and shows the asked GPUs only. A machine without the library cannot start
such a container, as it is with the real one. It runs for every container: only the standard library is used.

`HOST` is the folder that stands for the machine's file system (`gpu_host`).
"""

import json
import os
import platform
import shutil
import sys
import time
from pathlib import Path
from typing import Any

VARIABLE = "NVIDIA_VISIBLE_DEVICES"
NOTHING = ("", "void", "none")
LIBRARY = f"usr/lib/{platform.machine()}-linux-gnu/libnvidia-ml.so.1"
GPUS = "mock/gpus"  # below HOST: what tests/support/nvml shows
STATE_VARIABLE = "MOCK_NVML_STATE"
SHOWN = "/run/nvidia-stand-in"  # in the container
MISSING = (
    "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open shared object "
    "file: no such file or directory"
)


def program(host: Path, runc: str) -> str:
    """A script for containerd. Only `create` reads the bundle: all else goes to runc at once."""
    change = f'"{sys.executable}" -I "{Path(__file__).resolve()}" "{host}" "$@" || exit 1'
    return f'#!/bin/sh\ncase " $* " in *" create "*) {change} ;; esac\nexec "{runc}" "$@"\n'


def main(host: Path, words: list[str]) -> int:
    bundle = Path(words[words.index("--bundle") + 1])
    file = bundle / "config.json"
    config = json.loads(file.read_text())
    asked = variables(config).get(VARIABLE, "")
    if asked in NOTHING:
        return 0
    if not (host / LIBRARY).exists():
        _log(words, MISSING)
        return 1
    shown = host / "mock"
    if asked != "all":
        shown = bundle / "gpus"
        shown.mkdir()
        (shown / "gpus").write_text(visible((host / GPUS).read_text(), asked.split(",")))
    give(config, host / LIBRARY, shown)
    draft = file.with_suffix(".draft")
    draft.write_text(json.dumps(config))
    shutil.copymode(file, draft)
    draft.rename(file)
    return 0


def variables(config: dict[str, Any]) -> dict[str, str]:
    return dict(word.partition("=")[::2] for word in config["process"].get("env", ()))


def visible(described: str, asked: list[str]) -> str:
    """What is left of the description of GPUs: those that are asked for, by index or UUID."""
    head, *gpus = described.split("\ngpu=")
    kept = [gpu for index, gpu in enumerate(gpus) if {str(index), gpu.partition("\n")[0]} & set(asked)]
    return "\ngpu=".join((head, *kept))


def give(config: dict[str, Any], library: Path, shown: Path) -> None:
    config["process"].setdefault("env", []).append(f"{STATE_VARIABLE}={SHOWN}/gpus")
    for source, destination in ((library, f"/{LIBRARY}"), (shown, SHOWN)):
        mount = {"source": str(source), "destination": destination, "type": "bind", "options": ["rbind", "nosuid"]}
        config["mounts"].append(mount)


def _log(words: list[str], message: str) -> None:
    """Where runc would say it: containerd takes the last line for the reason."""
    line = {"level": "error", "msg": message, "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    with Path(words[words.index("--log") + 1]).open("a") as log:
        log.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
