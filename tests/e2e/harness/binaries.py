"""The programs of a real cluster: found, or built once and kept by version in the user's cache folder.

etcd, runc, Prometheus and InfluxDB come from Debian packages, unpacked and not installed, so that no service starts.
Kubernetes is built from the Go module proxy, of older versions kube-scheduler alone, and so are containerd, because
Debian's knows no CDI, and helm. Each is made under another name and renamed when it is whole, and a lock keeps two
builds from meeting. `make` runs this file once for each that is missing, to show a line for it; `cluster` and
`containers` find them with `program`, `packaged`, `monitoring` and `runtime`, and `charts` with `helm`.
"""

import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from gpushare.obs.errors import UserError

VERSION = "v1.36.4"
ETCD = "etcd"
CONTAINERD = "v2.2.9"
RUNTIME = f"containerd {CONTAINERD}"
RUNTIME_PROGRAMS = ("containerd", "containerd-shim-runc-v2", "ctr")
HELM_VERSION = "v3.22.0"
HELM = f"helm {HELM_VERSION}"
CONTAINERS = "packages"  # what containerd needs to run a container; debootstrap is for the image of gpushare
PACKAGES = ("runc", "containernetworking-plugins", "busybox-static", "debootstrap")
MONITORING = "monitoring"  # what reads our figures
MONITORING_PACKAGES = ("prometheus", "influxdb", "influxdb-client")
MODULE = "kubernetes sources"
PACKAGED = {ETCD, CONTAINERS, MONITORING}
KUBERNETES = ("kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubectl", "kubelet")
SCHEDULER = "kube-scheduler"
OLDER = "scheduler "  # and a version: the name of an older kube-scheduler, when it has to be made
# The Go that builds a kube-scheduler of this version; a newer one does not build the oldest. Each is the newest patch
# release of which the module proxy and its checksum database have every module.
TOOLCHAINS = {
    "v1.22.17": "go1.21.13",
    "v1.23.17": "go1.21.13",
    "v1.25.4": "go1.21.13",
    "v1.28.15": "go1.21.13",
    "v1.31.4": "go1.24.9",
}
TARGETS = {"cluster": (), "e2e": ("v1.22.17",), "e2e-versions": tuple(TOOLCHAINS)}  # of make; what each wants besides
COSTS = "11 minutes on 2 cores, 550 MB, containerd and helm included"
COSTS_OLDER = "2 to 6 minutes on 2 cores, 50 MB"
OLDEST_GO = (1, 21)  # fetches the toolchain that the sources ask for by itself
# Of Kubernetes' go.mod:
LANGUAGE = re.compile(r"^go (\S+)$", re.MULTILINE)
STAGED = re.compile(r"^\s*(k8s\.io/\S+) v0\.0\.0$", re.MULTILINE)  # made from its own tree
REPLACED = re.compile(r"^\s*(?:replace )?(\S+) => ([^.\s]\S*) (v\S+)$", re.MULTILINE)  # but for those of its own tree


def folder(version: str = VERSION) -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "gpushare" / f"kubernetes-{version}"


def program(name: str, version: str = VERSION) -> Path:
    """Where a program is, or will be."""
    if name == ETCD:
        found = shutil.which(ETCD)
        return Path(found) if found else folder() / ETCD
    return folder(version) / name


def packaged(path: str) -> Path:
    """Where a file of the Debian packages is, or will be."""
    return folder() / CONTAINERS / path


def monitoring(name: str) -> Path:
    """Where prometheus, promtool, influxd or influx is, or will be."""
    return folder() / MONITORING / "usr" / "bin" / name


def runtime(name: str) -> Path:
    """Where a program of containerd is, or will be."""
    return folder() / RUNTIME.replace(" ", "-") / name


def helm() -> Path:
    """Where helm is, or will be."""
    return folder() / HELM.replace(" ", "-") / "helm"


def missing(older: Iterable[str] = ()) -> list[str]:
    """What has to be made, in this order. `older`: versions of which kube-scheduler is wanted as well."""
    kubernetes = [name for name in KUBERNETES if not program(name).exists()]
    sources = [MODULE] if kubernetes and not _module_is_current() else []
    packages = [ETCD] * (not program(ETCD).exists()) + [CONTAINERS] * (not packaged("").exists())
    packages += [MONITORING] * (not monitoring("").exists())
    schedulers = [f"{OLDER}{version}" for version in older if not program(SCHEDULER, version).exists()]
    built = [RUNTIME] * (not runtime("").exists()) + [HELM] * (not helm().exists())
    return packages + built + sources + kubernetes + schedulers


def _module_is_current() -> bool:
    """It knows what the programs need that were named when it was made."""
    file = folder() / "module" / "programs.go"
    return file.exists() and file.read_text() == _imports(KUBERNETES)


def check(older: Iterable[str] = ()) -> None:
    """What must be there before anything is built or started."""
    if os.geteuid() != 0:
        raise UserError("make e2e has to run as root", "its cluster has a network of its own", "sudo make e2e")
    for tool, package in {"openssl": "openssl", "setpriv": "util-linux"}.items():
        if not shutil.which(tool):
            raise UserError(f"{tool} not found", "the cluster is started with it", f"apt-get install {package}")
    lacking = set(missing(older))
    if lacking - PACKAGED:
        _check_go()
    if lacking & PACKAGED and not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise UserError("apt-get not found", "etcd and runc are fetched with it, once", "run it on Debian 12")


def _check_go() -> None:
    why = f"Kubernetes {VERSION} is built with it, once"
    way = "install Go 1.21 or later (https://go.dev/dl) and have it on PATH"
    if not shutil.which("go"):
        raise UserError("Go not found", why, way)
    version = _go_version()
    if version < OLDEST_GO:
        raise UserError(f"Go {version[0]}.{version[1]} is too old", why, way)


def _go_version() -> tuple[int, int]:
    said = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"go(\d+)\.(\d+)", said)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def ensure(name: str) -> None:
    """Makes one of `missing()`, unless somebody else has done so meanwhile. Output of the tools goes to stderr."""
    older = [name.removeprefix(OLDER)] if name.startswith(OLDER) else []
    at = folder(*older)
    at.mkdir(parents=True, exist_ok=True)
    with _alone(at / "lock"), tempfile.TemporaryDirectory(dir=at, prefix="making-") as work:
        if name in missing(older):
            whole = _maker(name)(Path(work))
            if whole.is_dir():
                shutil.rmtree(at / whole.name, ignore_errors=True)  # one of other contents
            whole.rename(at / whole.name)


def ensure_all(say: Callable[[str], None], older: Iterable[str] = ()) -> None:
    """For a test run that nobody prepared with `make`."""
    for name in missing(older):
        say(f"making {name} in {folder().parent}")
        ensure(name)


def _maker(name: str) -> Callable[[Path], Path]:
    if name.startswith(OLDER):
        return partial(_make_older, version=name.removeprefix(OLDER))
    makers = {
        ETCD: _fetch_etcd, CONTAINERS: _fetch_containers, MONITORING: _fetch_monitoring, RUNTIME: _build_runtime,
        HELM: _build_helm, MODULE: _write_module,
    }  # fmt: skip
    return makers.get(name) or partial(_build, module=folder() / "module", name=name)


def _fetch_etcd(work: Path) -> Path:
    return _unpack(work, "etcd-server") / "usr" / "bin" / ETCD


def _fetch_containers(work: Path) -> Path:
    return _unpack(work, *PACKAGES).rename(work / CONTAINERS)


def _fetch_monitoring(work: Path) -> Path:
    return _unpack(work, *MONITORING_PACKAGES).rename(work / MONITORING)


def _unpack(work: Path, *packages: str) -> Path:
    if subprocess.run(["apt-get", "download", "-q", *packages], cwd=work, check=False).returncode:
        _run(work, "apt-get", "update", "-q")  # a machine that was never asked for a package has no lists
        _run(work, "apt-get", "download", "-q", *packages)
    for package in work.glob("*.deb"):
        _run(work, "dpkg-deb", "-x", str(package), "unpacked")
    return work / "unpacked"


def _build_runtime(work: Path) -> Path:
    """All of its programs at once: they have most of their parts in common."""
    module, whole = "github.com/containerd/containerd/v2", work / runtime("").name
    flags = f"-s -w -X {module}/version.Version={CONTAINERD}"
    programs = (f"{module}/cmd/{name}@{CONTAINERD}" for name in RUNTIME_PROGRAMS)
    _run(work, "go", "install", "-trimpath", "-ldflags", flags, *programs, GOBIN=str(whole))
    return whole


def _build_helm(work: Path) -> Path:
    """As its Makefile does: without a cluster it takes the one it was built for."""
    module, whole = "helm.sh/helm/v3", work / helm().parent.name
    major, minor, _ = VERSION.removeprefix("v").split(".")
    facts = {"internal/version.version": HELM_VERSION}
    for part in ("pkg/lint/rules", "pkg/chartutil"):
        facts |= {f"{part}.k8sVersionMajor": major, f"{part}.k8sVersionMinor": minor}
    flags = " ".join(["-s", "-w", *(f"-X {module}/{key}={value}" for key, value in facts.items())])
    _run(work, "go", "install", "-trimpath", "-ldflags", flags, f"{module}/cmd/helm@{HELM_VERSION}", GOBIN=str(whole))
    return whole


def _make_older(work: Path, version: str) -> Path:
    """Its sources are needed no more when it is built."""
    module = _write_module(work, version, (SCHEDULER,))
    return _build(work, module, SCHEDULER, version)


def _write_module(work: Path, version: str = VERSION, programs: tuple[str, ...] = KUBERNETES) -> Path:
    """A module that requires Kubernetes. Its staged parts are published under versions of their own."""
    module = work / "module"
    module.mkdir()
    (module / "go.mod").write_text("module e2e\n")
    go = partial(_run, module, "go", toolchain=TOOLCHAINS.get(version, ""))
    said = go("mod", "download", "-json", f"k8s.io/kubernetes@{version}")
    its_own = Path(json.loads(said)["GoMod"]).read_text()
    (language,) = LANGUAGE.findall(its_own)
    published = version.replace("v1.", "v0.")
    replaced = {part: f"{other}@{at}" for part, other, at in REPLACED.findall(its_own)}
    replaced |= {part: f"{part}@{published}" for part in STAGED.findall(its_own)}
    changes = (f"-replace={part}={other}" for part, other in replaced.items())
    go("mod", "edit", f"-go={language}", f"-require=k8s.io/kubernetes@{version}", *changes)
    (module / "programs.go").write_text(_imports(programs))
    go("mod", "tidy")
    return module


def _imports(programs: tuple[str, ...]) -> str:
    imports = "".join(f'import _ "k8s.io/kubernetes/cmd/{name}"\n' for name in programs)
    return f"//go:build programs\n\npackage main\n\n{imports}"


def _build(work: Path, module: Path, name: str, version: str = VERSION) -> Path:
    major, minor, _ = version.removeprefix("v").split(".")
    facts = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    flags = " ".join(["-s", "-w", *(f"-X k8s.io/component-base/version.{key}={value}" for key, value in facts.items())])
    build = ("go", "build", "-trimpath", "-ldflags", flags, "-o", str(work / name), f"k8s.io/kubernetes/cmd/{name}")
    _run(module, *build, toolchain=TOOLCHAINS.get(version, ""))
    return work / name


def _run(at: Path, *command: str, toolchain: str = "", **variables: str) -> str:
    environment = dict(os.environ, CGO_ENABLED="0", **variables)
    if command[0] == "go" and (toolchain or _go_version() < (1, 26)):
        environment["GOTOOLCHAIN"] = toolchain or "auto"
    done = subprocess.run(["nice", *command], cwd=at, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise UserError(
            f"{command[0]} {command[1]} failed with exit code {done.returncode}", "its own words are above", "try again"
        )
    return done.stdout


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    with path.open("a") as lock:
        started = time.monotonic()
        said = False
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not said and time.monotonic() - started > 1:
                    print(f"waiting for another build in {path.parent}", file=sys.stderr, flush=True)
                    said = True
                time.sleep(0.1)
        yield


def main(words: list[str]) -> int:
    """`list` and a target of make: says what it lacks, one per line. `make` and one of these: makes it."""
    deed, given = words
    try:
        if deed == "make":
            ensure(given)
        else:
            check(TARGETS[given])
            _list(missing(TARGETS[given]))
    except UserError as error:
        print(error.render(), file=sys.stderr)
        return error.code
    return 0


def _list(lacking: list[str]) -> None:
    if set(lacking) & set(KUBERNETES):
        print(f"  Kubernetes {VERSION} is built once: {COSTS}, kept in {folder()}", file=sys.stderr)
    if any(name.startswith(OLDER) for name in lacking):
        print(f"  older kube-schedulers are built once: {COSTS_OLDER} each, kept beside it", file=sys.stderr)
    print("".join(f"{name}\n" for name in lacking), end="")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
