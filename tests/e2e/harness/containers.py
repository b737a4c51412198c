"""A simulated machine for one kubelet: its own processes, its own folders (`OWN`) and shared memory, and containerd.

It is made of two kernel namespaces. When its first process ends all others end, and its mounts are gone with the last
one: nothing has to be unmounted, and a killed run leaves only files behind. It shares the network of the cluster.
"""

import asyncio
import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from gpushare.core.facts import names
from tests.e2e.harness import binaries, processes
from tests.e2e.harness.cluster import Failed, NotReady, run, until
from tests.e2e.harness.processes import Process, Processes

OWN = ("/var/lib", "/var/log", "/run", "/etc/kubernetes", names.MPS_PIPE_FOLDER)
PCI = "/sys/bus/pci/devices"  # its own, too, on machines that have one
HOST = "/host"  # stands for its file system, with what is in none of its own folders
EMPTY_SECONDS = 10.0
# The first process of a machine: orphans become its children, and `wait` takes the dead ones away.
FIRST = (
    f"mount -t tmpfs none {names.SHM_FOLDER} && "
    + "".join(f'mkdir -p {folder} && mount --bind "$0{folder}" {folder} && ' for folder in OWN)
    + f'mount --bind "$0{HOST}" "$0{HOST}" && mount --make-shared "$0{HOST}" && '  # as the root of real machines
    + f'mount --bind "$0/run" "$0{HOST}/run" && if test -d {PCI}; then mount --bind "$0{HOST}{PCI}" {PCI}; fi && '
    + "{ sleep infinity & wait; }"
)
NETWORK = """{"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "ptp", "ipam": {
  "type": "host-local", "subnet": "10.88.0.0/16", "routes": [{"dst": "0.0.0.0/0"}]}}]}"""
CONFIGURATION = """
version = 3
disabled_plugins = ["io.containerd.internal.v1.opt"] # it would make /opt/containerd
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "{snapshotter}"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{pause}"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  disable_apparmor = true
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["{plugins}"]
  conf_dir = "/run/cni"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia.options]
  BinaryName = "{host}/usr/bin/nvidia-container-runtime"
"""


class Machine:
    def __init__(self, folder: Path, running: Processes, pause: str) -> None:
        self.folder, self.processes = folder, running
        self.cgroup = f"gpushare-{hashlib.sha256(str(folder).encode()).hexdigest()[:8]}"
        self._pause, self._snapshotter = pause, ""
        self._machine: Process | None = None
        self._containerd: Process | None = None

    async def start(self) -> None:
        self._clean()
        self._make_folders()
        self._snapshotter = await _snapshotter(self.folder)
        for hierarchy in hierarchies():
            (hierarchy / self.cgroup).mkdir(exist_ok=True)
        self._machine = self.processes.start(
            "machine", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
            "--propagation", "private", "sh", "-c", FIRST, self.folder,
        )  # fmt: skip
        self.inside("/run/cni/pods.conflist").write_text(NETWORK)
        configuration = self.folder / "containerd.toml"
        paths = {"plugins": binaries.packaged("usr/lib/cni"), "host": self.host}
        configuration.write_text(CONFIGURATION.format(pause=self._pause, snapshotter=self._snapshotter, **paths))
        await until("the machine", self._is_mounted, self._machine)
        self._containerd = self.run_in("containerd", binaries.runtime("containerd"), "-c", configuration)
        await until("containerd", self._has_containerd, self._containerd)

    async def stop(self) -> None:
        """Ends all its processes: with the first one all others die."""
        first = _children(self._machine.popen.pid) if self._machine is not None else []
        for process in (self._machine, self._containerd):
            if process is not None:
                await self.processes.end(process, signal.SIGKILL)
        await asyncio.to_thread(_until_gone, first)
        await asyncio.to_thread(self._clean)

    def inside(self, path: str) -> Path:
        """The path outside the machine of a path in its own folders."""
        return self.folder / path.lstrip("/")

    @property
    def host(self) -> Path:
        """Where NVIDIA's driver and container runtime are, if it has them (`gpu_host`)."""
        return self.inside(HOST)

    @property
    def pci(self) -> Path:
        """Its PCI devices. There are none at first."""
        return self.inside(HOST + PCI)

    @property
    def first(self) -> int:
        """The id of its first process outside the machine."""
        assert self._machine is not None
        (first,) = _children(self._machine.popen.pid)
        return first

    # What runs in there

    def run_in(self, name: str, *command: str | Path) -> Process:
        return self.processes.start(name, *self._entering(), *command, environment=_environment())

    async def end(self, process: Process, number: signal.Signals = signal.SIGTERM) -> None:
        """The process itself, not the helper that started it in the machine; the helper ends with it."""
        for pid in _children(process.popen.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        patience_ends = time.monotonic() + processes.PATIENCE
        while process.running:
            if time.monotonic() > patience_ends:
                raise NotReady(f"{process.name} does not end; {process.log}:\n{process.tail()}")
            await asyncio.sleep(0.02)
        await self.processes.end(process)

    async def import_image(self, archive: Path) -> None:
        """Under the name that the archive gives it."""
        await self.ctr("images", "import", f"--snapshotter={self._snapshotter}", str(archive))

    async def kill_container(self, container: str) -> None:
        """`container`: its id, as in a pod's status. The kernel does the same when memory runs out."""
        await self.ctr("tasks", "kill", "--signal", "SIGKILL", container.partition("://")[2])

    async def pid_of(self, container: str) -> int:
        """The id of its first process, as processes of the machine see it."""
        (line,) = (li for li in (await self.ctr("tasks", "list")).splitlines() if container.partition("://")[2] in li)
        return int(line.split()[1])

    async def kill_all_containers(self) -> None:
        """As after a power failure."""
        for container in (await self.ctr("tasks", "list", "--quiet")).split():
            with contextlib.suppress(Failed):  # it went with another one
                await self.ctr("tasks", "kill", "--signal", "SIGKILL", container)

    async def try_(self, *command: str | Path, **environment: str) -> "subprocess.CompletedProcess[str]":
        """A command in there, whatever its exit code is."""
        return await asyncio.to_thread(
            subprocess.run, [*map(str, (*self._entering(), *command))], env={**_environment(), **environment},
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    async def ctr(self, *arguments: str) -> str:
        program = str(binaries.runtime("ctr"))
        return await run([*map(str, self._entering()), program, "--namespace=k8s.io", *arguments])

    def _entering(self) -> list[str]:
        return ["nsenter", f"--target={self.first}", "--mount", "--pid", "--"]

    # Waiting and cleaning

    async def _is_mounted(self) -> bool:
        assert self._machine is not None
        return any(_has_own_folders(first) for first in _children(self._machine.popen.pid))

    async def _has_containerd(self) -> bool:
        with contextlib.suppress(Failed):
            return bool(await self.ctr("version"))
        return False

    def _make_folders(self) -> None:
        for folder in (*OWN, "/run/cni", "/var/lib/kubelet", f"{HOST}/run", HOST + PCI):
            self.inside(folder).mkdir(parents=True, exist_ok=True)
        for folder in OWN:
            Path(folder).mkdir(exist_ok=True)  # its own one covers it

    def _clean(self) -> None:
        """Cgroups stay after their processes, and the kernel needs a moment to see that these are gone."""
        patience_ends = time.monotonic() + EMPTY_SECONDS
        for top in (hierarchy / self.cgroup for hierarchy in hierarchies()):
            while top.exists():
                try:
                    for folder in _bottom_up(top):
                        folder.rmdir()
                except OSError:
                    if time.monotonic() > patience_ends:
                        raise
                    time.sleep(0.05)
        shutil.rmtree(self.folder, ignore_errors=True)


async def _snapshotter(folder: Path) -> str:
    """overlayfs if the file system can do it, else native, which copies."""
    with tempfile.TemporaryDirectory(dir=folder) as work:
        layers = {name: Path(work) / name for name in ("lowerdir", "upperdir", "workdir", "merged")}
        for path in layers.values():
            path.mkdir()
        merged = layers.pop("merged")
        options = ",".join(f"{name}={path}" for name, path in layers.items())
        try:
            await run(["unshare", "--mount", "mount", "-t", "overlay", "-o", options, "overlay", str(merged)])
        except Failed:
            return "native"
    return "overlayfs"


def _environment() -> dict[str, str]:
    path = ":".join(map(str, (binaries.runtime(""), binaries.packaged("usr/bin"), binaries.packaged("usr/sbin"))))
    return {**os.environ, "PATH": f"{path}:{os.environ['PATH']}"}


def _has_own_folders(pid: int) -> bool:
    with contextlib.suppress(OSError):
        mounted = {line.split()[1] for line in Path(f"/proc/{pid}/mounts").read_text().splitlines()}
        return mounted.issuperset(OWN)
    return False


def _until_gone(pids: list[int]) -> None:
    patience_ends = time.monotonic() + processes.GONE_SECONDS
    while any(map(processes.start_time, pids)) and time.monotonic() < patience_ends:
        time.sleep(0.02)


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def hierarchies() -> list[Path]:
    """Folders of cgroups: several trees of version 1, or one of version 2. Many machines have both."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [Path(mount[1]) for mount in mounts if mount[2] in ("cgroup", "cgroup2")]


def _bottom_up(top: Path) -> Iterator[Path]:
    for folder in top.iterdir():
        if folder.is_dir():
            yield from _bottom_up(folder)
    yield top
