"""The real node as a control plane of kubeadm: kube-scheduler is a static pod, from kubeadm's manifest as it is, and
`gpushare install-scheduler` is run as people run it there, by hand or as the Job of deploy/."""

import asyncio
import base64
import contextlib
import copy
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import yaml

import gpushare
from tests.e2e.harness import keti_images, shipped
from tests.e2e.harness.cluster import ADMIN, NODE, ROOT, SCHEDULER, URL
from tests.e2e.harness.kubelet import STATIC_PODS, Node
from tests.e2e.harness.versions import Scheduler
from tests.support import wait

Object = dict[str, Any]
KUBEADM = ROOT / "tests" / "install" / "data" / "kubeadm-1.36.yaml"
FOLDER = "/etc/kubernetes/gpushare"
JOB = "install-scheduler.yaml"
POD = f"kube-scheduler-{NODE}"
PATIENCE = 120.0
Done = subprocess.CompletedProcess[str]


class ControlPlane:
    def __init__(self, node: Node) -> None:
        self.node, self.cluster = node, node.cluster
        self.manifest = node.machine.inside(STATIC_PODS) / "kube-scheduler.yaml"
        self.folder = node.machine.inside(FOLDER)
        self.kubeadm = KUBEADM.read_bytes()
        self._images = node.machine.folder / "scheduler-images"

    async def start(self) -> None:
        """Returns when the scheduler is ready, with its manifest as kubeadm writes it."""
        self._images.mkdir()
        await self.node.machine.import_image(await asyncio.to_thread(keti_images.scheduler, self._images))
        for name, user in (("scheduler.conf", SCHEDULER), ("admin.conf", ADMIN)):
            self._kubeconfig(name, user)
        self.manifest.write_bytes(self.kubeadm)
        await wait.eventually_asked(self.is_ready, "kube-scheduler is ready", PATIENCE)

    async def become_old(self, kind: Scheduler) -> None:
        """kube-scheduler of another version, with kubeadm's manifest of that time."""
        name = f"k8s.gcr.io/kube-scheduler:{kind.version}"
        image = await asyncio.to_thread(keti_images.scheduler, self._images, name, kind.version)
        await self.node.machine.import_image(image)
        text = KUBEADM.with_name(f"kubeadm-{'.'.join(map(str, kind.number))}.yaml").read_text()
        flags = "".join(f"    - {flag}\n" for flag in kind.flags)
        self.kubeadm = text.replace("    image:", f"{flags}    image:", 1).encode()
        self.manifest.write_bytes(self.kubeadm)
        await self.until_flag(kind.flags[0])

    async def become_new(self) -> None:
        """As it was at first."""
        self.kubeadm = KUBEADM.read_bytes()
        self.manifest.write_bytes(self.kubeadm)
        await self.until_flag("")

    async def stop(self) -> None:
        self.manifest.unlink()

    def _kubeconfig(self, name: str, user: str) -> None:
        """With all that it needs in one file, as kubeadm's are."""
        ca = base64.b64encode(self.cluster.ca.read_bytes()).decode()
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "e2e", "cluster": {"server": URL, "certificate-authority-data": ca}}],
            "users": [{"name": user, "user": {"token": self.cluster.tokens[user]}}],
            "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": user}}],
            "current-context": "e2e",
        }
        file = self.node.machine.inside("/etc/kubernetes") / name
        file.write_text(json.dumps(content))
        file.chmod(0o600)

    # What is there

    async def pod(self) -> Object:
        return dict(await self.cluster.get(f"/api/v1/namespaces/{shipped.NAMESPACE}/pods/{POD}"))

    async def is_ready(self) -> bool:
        with contextlib.suppress(Exception):
            statuses = (await self.pod())["status"].get("containerStatuses", [])
            return bool(statuses) and statuses[0]["ready"]
        return False

    async def flags(self) -> list[str]:
        """Of the scheduler, as the API server knows it."""
        (container,) = (await self.pod())["spec"]["containers"]
        return list(container["command"])

    async def until_flag(self, flag: str) -> None:
        """Until it is ready with this flag; empty: with those of kubeadm's manifest only."""

        async def there() -> bool:
            flags: list[str] = []
            with contextlib.suppress(aiohttp.ClientResponseError):  # kubelet is about to make the pod anew
                flags = await self.flags()
            as_wanted = flag in flags if flag else flags == _words(self.kubeadm)
            return as_wanted and await self.is_ready()

        await wait.eventually_asked(there, f"kube-scheduler has {flag or 'its own flags'}", PATIENCE)

    def files(self) -> list[str]:
        """All that gpushare has left on the machine."""
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file())

    @property
    def is_as_before(self) -> bool:
        return self.manifest.read_bytes() == self.kubeadm and not self.folder.exists()

    # The command

    async def run(self, *words: str) -> Done:
        """As root, on the machine, with kubeadm's own admin.conf."""
        done = await self.node.machine.try_(*self._command(*words), **_ENVIRONMENT)
        said = f"# gpushare install-scheduler {' '.join(words)}\n{done.stdout}{done.stderr}exit {done.returncode}\n\n"
        with (self.cluster.logs / "install-scheduler.txt").open("a") as kept:  # for docs/install-scheduler.md
            kept.write(said)
        return done

    async def kill_when(self, file: str, *words: str) -> None:
        """Begins, and is killed by force as soon as the manifest contains this."""
        process = self.node.machine.run_in("install-scheduler", *_variables(), *self._command(*words))

        async def there() -> bool:
            return file in self.manifest.read_text()

        await wait.eventually_asked(there, f"the manifest has {file}", PATIENCE)
        await self.node.machine.end(process, signal.SIGKILL)

    def _command(self, *words: str) -> list[str | Path]:
        return [Path(sys.executable).parent / "gpushare", "install-scheduler", f"--node-name={NODE}", *words]

    async def job(self, *words: str) -> tuple[bool, str]:
        """The Job, with these words more. Whether it succeeded, and what it printed."""
        documents = [_for_test_machine(document, words) for document in shipped.documents(JOB)]
        await self.cluster.apply(*documents)
        where = ("--namespace", shipped.NAMESPACE)
        path = f"/apis/batch/v1/namespaces/{shipped.NAMESPACE}/jobs/gpushare-install-scheduler"
        status: Object = {}

        async def ended() -> bool:
            status.update((await self.cluster.get(path))["status"])
            return bool(status.get("succeeded") or status.get("failed"))

        try:
            await wait.eventually_asked(ended, "the Job has ended", PATIENCE)
            printed = await self.cluster.kubectl("logs", *where, "job/gpushare-install-scheduler")
        finally:
            given = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
            await self.cluster.kubectl("delete", "-f", "-", "--cascade=foreground", given=given)
        return bool(status.get("succeeded")), printed


def _words(manifest: bytes) -> list[str]:
    (container,) = yaml.safe_load(manifest)["spec"]["containers"]
    return list(container["command"])


_ENVIRONMENT = {
    "PYTHONPATH": str(Path(gpushare.__file__).resolve().parents[1]),
    "HOME": "/nonexistent",
    "KUBECONFIG": "",
}


def _variables() -> list[str]:
    return ["env", *(f"{name}={value}" for name, value in _ENVIRONMENT.items())]


def _for_test_machine(document: Object, words: Sequence[str]) -> Object:
    """There is no kube-proxy: the API server has another address."""
    changed = copy.deepcopy(document)
    if changed["kind"] == "Job":
        (container,) = changed["spec"]["template"]["spec"]["containers"]
        container["args"] += words
        address = {name: shipped.MACHINE[name] for name in ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")}
        container["env"] += [{"name": name, "value": value} for name, value in address.items()]
    return changed


@contextlib.asynccontextmanager
async def running(node: Node) -> AsyncIterator[ControlPlane]:
    plane = ControlPlane(node)
    try:
        await plane.start()
        yield plane
    finally:
        await plane.stop()
