"""Reads the manifest of a static pod: the container, the version and the flags of kube-scheduler, its files.

Whatever is not as kubeadm writes it, and could be misunderstood, is refused with the reason.
"""

import re
from pathlib import PurePosixPath
from typing import Any, Final

import msgspec
import yaml

from gpushare.install import flags, refusals
from gpushare.install.entries import FOLDER, Object
from gpushare.install.refusals import BY_HAND, refused

PROGRAM: Final = "kube-scheduler"
VOLUME: Final = "gpushare"  # its name, in the pod
OLDEST: Final = (1, 19)
TAG: Final = re.compile(r"v?(\d+)\.(\d+)(\.|$|[-+])")
VERSION: Final = re.compile(r"v?(\d+)\.(\d+)(\.\d+)?")
DEFAULT_PORT: Final = 10259
SHELLS: Final = ("sh", "bash", "ash", "dash", "busybox")


class Manifest(msgspec.Struct, frozen=True):
    name: str  # of the file, as messages have it
    pod: Object  # as it is written
    version: tuple[int, int]

    @property
    def container(self) -> Object:
        (container,) = self.pod["spec"]["containers"]
        return dict(container)

    @property
    def words(self) -> list[str]:
        """The command with all its arguments."""
        return [*(self.container.get("command") or ()), *(self.container.get("args") or ())]

    @property
    def pod_name(self) -> str:
        return str(self.pod["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.pod["metadata"].get("namespace") or "default")

    def flag(self, name: str) -> str | None:
        return flags.value(self.words, name)

    @property
    def health(self) -> str:
        """The URL where it says that it is well, as its own probe asks."""
        for probe in ("readinessProbe", "livenessProbe", "startupProbe"):
            asked = (self.container.get(probe) or {}).get("httpGet")
            if asked:
                host, port = asked.get("host") or "127.0.0.1", self._port(asked.get("port"))
                scheme = str(asked.get("scheme") or "HTTP").lower()
                return f"{scheme}://{_bracketed(host)}:{port}/{str(asked.get('path') or '').lstrip('/')}"
        host = self.flag("bind-address") or "127.0.0.1"
        host = "127.0.0.1" if host in ("0.0.0.0", "::") else host
        return f"https://{_bracketed(host)}:{self.flag('secure-port') or DEFAULT_PORT}/healthz"

    def _port(self, port: Any) -> int:
        named = {str(one.get("name")): one.get("containerPort") for one in self.container.get("ports") or ()}
        return int(named.get(str(port)) or (port if isinstance(port, int) else DEFAULT_PORT))

    def host_path(self, path: str) -> str:
        """Where a file in the container is on the machine."""
        found: tuple[str, Object] = ("", {})
        for mount in self.container.get("volumeMounts") or ():
            place = str(mount.get("mountPath", "")).rstrip("/")
            if (path == place or path.startswith(f"{place}/")) and len(place) >= len(found[0]):
                found = (place, mount)
        place, mount = found
        if not mount:
            raise refused(f'"{path}" is not a file of this machine', "nothing of the machine is mounted there")
        if mount.get("subPathExpr"):
            raise refused(f"{path} cannot be merged", "its mount has a subPathExpr, which only kubelet can read")
        volume = self._volume(str(mount.get("name")))
        where = (volume or {}).get("hostPath")
        if not where:
            kinds = ", ".join(key for key in volume or {} if key != "name") or "missing"
            why = f'it is in volume "{mount.get("name")}", which is {kinds}, not a folder of this machine'
            raise refused(f"{path} cannot be merged", why)
        inside = PurePosixPath(where["path"]) / str(mount.get("subPath") or "")
        return str(inside / path[len(place) :].lstrip("/") if path != place else inside)

    def _volume(self, name: str) -> Object | None:
        return next((one for one in self.pod["spec"].get("volumes") or () if one.get("name") == name), None)

    def check_place(self) -> None:
        """Refuses if our volume, or our folder in the container, is something else already."""
        volume = self._volume(VOLUME)
        if volume is not None and ((volume.get("hostPath") or {}).get("path") or "").rstrip("/") != FOLDER:
            raise refused(f'{self.name} has a volume "{VOLUME}" already', f"it is not the folder {FOLDER}")
        for mount in self.container.get("volumeMounts") or ():
            here, ours = str(mount.get("mountPath", "")).rstrip("/") == FOLDER, mount.get("name") == VOLUME
            if here != ours:
                why = f'volume "{mount.get("name")}" is mounted at {mount.get("mountPath")}'
                raise refused(f"{FOLDER} in the container is taken", why)

    @property
    def has_volume(self) -> bool:
        return self._volume(VOLUME) is not None

    @property
    def has_mount(self) -> bool:
        return any(mount.get("name") == VOLUME for mount in self.container.get("volumeMounts") or ())


def read(text: bytes, name: str, version: str = "") -> Manifest:
    """`version`: what the user says, where the image does not."""
    pod = parsed(text, name)
    container = _container(pod, name)
    refusals.check(pod, refusals.Pod, name)
    manifest = Manifest(name, pod, _version(container, version))
    if manifest.version < OLDEST:
        major, minor = manifest.version
        raise refused(f"kube-scheduler {major}.{minor} is too old", "gpushare's configurations are for 1.19 and later")
    for flag in ("policy-configmap", "policy-configmap-namespace"):
        if manifest.flag(flag) is not None:
            way = "write that Policy into a file, and name it with --policy-config-file"
            raise refused("kube-scheduler reads its Policy from a ConfigMap", f"{name} has --{flag}", way)
    if manifest.flag("config") is not None and manifest.flag("policy-config-file") is not None:
        why = f"{name} has both --config and --policy-config-file"
        raise refused("kube-scheduler has two configurations", why, "leave one of them out first")
    manifest.check_place()
    return manifest


def parsed(text: bytes, name: str) -> Object:
    """The one object in a file."""
    try:
        documents = [one for one in yaml.safe_load_all(text.decode("utf-8")) if one is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        where = getattr(error, "problem_mark", None)
        why = getattr(error, "problem", None) or str(error)
        line = f" in line {where.line + 1}" if where is not None else ""
        raise refused(f"{name} cannot be read", f"{why}{line}", "correct it, or see the backup that you have") from None
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise refused(f"{name} is not understood", f"it has {len(documents)} documents, not one object")
    return documents[0]


def _container(pod: Object, name: str) -> Object:
    if pod.get("kind") != "Pod" or pod.get("apiVersion") != "v1":
        why = f"it is a {pod.get('kind')} of {pod.get('apiVersion')}, not a Pod of v1"
        raise refused(f"{name} is not a static pod", why)
    metadata, spec = pod.get("metadata"), pod.get("spec")
    if not (isinstance(metadata, dict) and metadata.get("name") and isinstance(spec, dict)):
        raise refused(f"{name} is not understood", "the pod has no name, or no spec")
    containers = spec.get("containers")
    if not (isinstance(containers, list) and len(containers) == 1 and isinstance(containers[0], dict)):
        count = len(containers) if isinstance(containers, list) else 0
        why = f"the pod has {count} containers; it must have one, kube-scheduler"
        raise refused(f"{name} is not understood", why)
    _check_command(containers[0], name)
    return dict(containers[0])


def _check_command(container: Object, name: str) -> None:
    command, arguments = container.get("command") or [], container.get("args") or []
    for words in (command, arguments):
        if not (isinstance(words, list) and all(isinstance(word, str) for word in words)):
            raise refused(f"{name} is not understood", "command and args must be lists of words")
    program = PurePosixPath(command[0]).name if command else ""
    if program in SHELLS:
        raise refused(f"{name} is not understood", f"it starts kube-scheduler through a shell: {command[0]}")
    if not command:
        why = "it has no command, so which words are flags of kube-scheduler depends on the image"
        raise refused(f"{name} is not understood", why, f"write command: [kube-scheduler] into it, or {BY_HAND}")
    if program != PROGRAM:
        raise refused(f"{name} does not run kube-scheduler", f"its command is {command[0]}", "--manifest FILE")


def _version(container: Object, said: str) -> tuple[int, int]:
    if said:
        match = VERSION.fullmatch(said)
        if match is None:
            raise refused(f'"{said:.20}" is not a version', "versions are like 1.31 or v1.31.4", "kubectl version")
        return int(match[1]), int(match[2])
    image = str(container.get("image") or "")
    last = image.partition("@")[0].rpartition("/")[2]
    match = TAG.match(last.partition(":")[2])
    if match is None:
        why = f'its image "{image}" has no tag that says it'
        way = "--kubernetes-version 1.31 (kube-scheduler --version in the container says it)"
        raise refused("which version of kube-scheduler is this?", why, way)
    return int(match[1]), int(match[2])


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
