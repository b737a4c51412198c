"""deploy/keti on the real node: a copy of deploy/ in which only addresses differ, and the stand-ins for NVIDIA's driver
and its MPS program are added; its scripts run as people run them, in a shell with kubectl.

There is neither kube-proxy nor DNS: the addresses of the API server's and InfluxDB's Services are made to work
(`services`), and the collector is given the address in place of the name.
"""

import asyncio
import contextlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from gpushare.core.facts import names, vitals
from tests.e2e.harness import binaries, keti_images, mps, objects, services, shipped
from tests.e2e.harness.cluster import ADMIN, NODE, ROOT
from tests.e2e.harness.images import SMALL
from tests.e2e.harness.kubelet import Node
from tests.e2e.harness.node_world import GRACE, STAY
from tests.e2e.harness.world import World
from tests.support import wait
from tests.support.nvml import build, state
from tests.support.objects import Object

STEPS = ROOT / "tests" / "e2e" / "data" / "keti-steps.txt"
NOT_HERE = ("hostnamectl", "vi")  # they change this machine, and people type into the second
COMMAND = re.compile(r"^(?:\[root@master ~\])?# (.+)$")
INFLUX = "10.0.0.86:8086"
INFLUX_NAME = "influxdb.gpu.svc.cluster.local"
WORKLOADS = ("device-plugin.yaml", "metric-collector.yaml")
SCHEDULER = "gpu-scheduler"
PATIENCE = 90.0
LONGEST = 400  # seconds for one command
INSPECT = """
import urllib.request
print(urllib.request.urlopen("http://127.0.0.1:12345/gpushare-scheduler/inspect").read().decode())
"""


class Step(NamedTuple):
    """A command of KETI's guide, and the lines below it: what it should print."""

    command: str
    shown: list[str]


def steps() -> list[Step]:
    """All commands of the guide, in its order."""
    found = list[Step]()
    for line in STEPS.read_text("utf-8").splitlines():
        if match := COMMAND.match(line):
            found.append(Step(match[1], []))
        elif found and line and line != "or" and not line.startswith("["):
            found[-1].shown.append(line)
    return found


class Done(NamedTuple):
    step: Step
    printed: str  # empty: skipped


class Keti:
    def __init__(self, node: Node, gpus: Sequence[int]) -> None:
        self.node, self.cluster = node, node.cluster
        self.sizes = list(gpus)
        self.deploy = node.machine.folder / "deploy"
        self.mock = state.Mock(node.machine.folder / "mock" / shipped.STATE)
        self.done: list[Done] = []  # what was run of the guide
        self.mark = node.cluster.audit.mark()  # of the audit log, before anything of this

    # Installing

    async def prepare(self) -> None:
        """All that a cluster has before somebody begins with the guide."""
        await asyncio.to_thread(build.build, self.mock.path.parent)
        mps.install_program(self.mock.path.parent)
        self.show()
        shutil.copytree(shipped.DEPLOY, self.deploy)
        self._adapt()
        for archive in await asyncio.to_thread(keti_images.made, self.node.machine.folder / "keti-images"):
            await self.node.machine.import_image(archive)
        services.lead_to_api(self.cluster, INFLUX)

    def _adapt(self) -> None:
        for name in WORKLOADS:
            documents = [shipped.for_test_machine(one, self.mock.path.parent) for one in self._read(name)]
            for container in (c for one in documents for c in one["spec"]["template"]["spec"]["containers"]):
                if container["name"] == "mps":
                    mps.give_program(container)
            self._write(name, documents)
        file = self._file("metric-collector.yaml")
        file.write_text(file.read_text().replace(f"{INFLUX_NAME}:8086", INFLUX))
        of_influx = self._read("influxdb.yaml")
        for one in of_influx:
            if one["kind"] == "Service":
                one["spec"]["clusterIP"] = INFLUX.partition(":")[0]
        self._write("influxdb.yaml", of_influx)

    def _file(self, name: str) -> Path:
        return self.deploy / "keti" / "deployments" / name

    def _read(self, name: str) -> list[Object]:
        return list(yaml.safe_load_all(self._file(name).read_text("utf-8")))

    def _write(self, name: str, documents: list[Object]) -> None:
        self._file(name).write_text(yaml.safe_dump_all(documents), "utf-8")

    async def run(self, command: str) -> str:
        """In the folder of the scripts, as admin. Returns what it printed; raises if it failed."""
        done = await self.try_(command)
        assert done.returncode == 0, f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    async def try_(self, command: str) -> "subprocess.CompletedProcess[str]":
        environment = {
            **os.environ,
            "KUBECONFIG": str(self.cluster.kubeconfig(ADMIN, self.cluster.tokens[ADMIN])),
            "PATH": f"{binaries.program('kubectl').parent}:{os.environ['PATH']}",
            "WAIT_SECONDS": f"{PATIENCE:.0f}",
        }
        return await asyncio.to_thread(
            subprocess.run, ["sh", "-c", command], cwd=self.deploy / "keti", env=environment, capture_output=True,
            text=True, timeout=LONGEST, check=False,
        )  # fmt: skip

    async def follow(self, *, until: str = "") -> None:
        """Runs what is left of the guide, up to a command with these words, without it."""
        for step in steps()[len(self.done) :]:
            if until and until in step.command:
                return
            skipped = step.command.split()[0] in NOT_HERE
            self.done.append(Done(step, "" if skipped else await self.run(step.command)))
            with (self.cluster.logs / "keti-guide.txt").open("a") as kept:  # for docs/gpu-scheduler.md
                kept.write(f"# {step.command}\n{self.done[-1].printed}\n")

    async def reach_influx(self) -> None:
        """From now on its Service leads to it; until then the collector keeps its points."""
        pod = await self.cluster.get("/api/v1/namespaces/gpu/pods/influxdb-0")
        services.lead(self.cluster, "influx", INFLUX, f"{pod['status']['podIP']}:8086")

    async def stop(self) -> None:
        """As people remove it; what then is left is data."""
        self.node.keep_logs("gpu")
        await self.run("./5.delete-gpu-scheduler.sh")
        await self.run("kubectl delete namespace gpu userpod --ignore-not-found")
        await self.run("kubectl delete pv keti-influxdb --ignore-not-found")
        await services.end(self.cluster)

    # The GPUs

    def show(self, figures: Mapping[int, Mapping[str, int | str | None]] | None = None) -> None:
        """What the GPUs do from now on, by their numbers; others are idle."""
        given = figures or {}
        self.mock.show(*(state.using(i, mib, **given.get(i, {})) for i, mib in enumerate(self.sizes)))

    async def figures(self) -> list[Object]:
        """What the GPUNode says of each GPU; none while there is no GPUNode."""
        path = f"/apis/{vitals.GROUP}/{vitals.VERSION}/{vitals.PLURAL}"
        nodes = {one["metadata"]["name"]: one for one in (await self.cluster.get(path))["items"]}
        return list(nodes.get(NODE, {}).get("status", {}).get("gpus", ()))

    async def until_measured(self, **figures: Sequence[int]) -> None:
        """Until the GPUNode has these figures, one for each GPU: `utilization=[90, 0]`."""

        async def measured() -> bool:
            found = await self.figures()
            return all([gpu.get(key) for gpu in found] == list(values) for key, values in figures.items())

        await wait.eventually_asked(measured, f"measured {figures}", PATIENCE)

    # Asking

    async def inspect(self) -> list[Object]:
        """What the extender knows of each GPU; it listens on the loopback of its own pod only."""
        where = ("--namespace=gpu", "deployment/keti-gpu-scheduler", "--container=gpushare-schd-extender")
        said = await self.cluster.kubectl("exec", *where, "--", "python3", "-c", INSPECT)
        (node,) = (one for one in json.loads(said)["nodes"] if one["name"] == NODE)
        return list(node["devs"])


class KetiWorld(World):
    """Pods in the words of a scenario, for the scheduler of deploy/keti. They print their environment and stay."""

    def pod_of(self, words: Object) -> Object:
        clients = words.get("clients")
        made = objects.pod(**{"scheduler": SCHEDULER, **{word: words[word] for word in words if word != "clients"}})
        made["spec"]["terminationGracePeriodSeconds"] = GRACE
        for container in made["spec"]["containers"]:
            container |= {"image": SMALL, "command": STAY}
        if clients:  # of MPS, made by hand as in KETI's guide
            made["spec"] |= {
                "hostIPC": True,
                "volumes": [{"name": "pipes", "hostPath": {"path": names.MPS_PIPE_FOLDER}}],
            }
            for container in made["spec"]["containers"]:
                container["volumeMounts"] = [{"name": "pipes", "mountPath": names.MPS_PIPE_FOLDER}]
        return made

    async def run(self, *pods: Object, seconds: float = PATIENCE) -> None:
        """Until each of them runs."""
        await self.make_pods(*pods)
        wanted = [words["name"] for words in pods]
        await self.watch.until(f"{wanted} run", lambda: all(map(self.runs, wanted)), seconds)

    def runs(self, name: str) -> bool:
        return bool(self.watch.pods.get(name, {}).get("status", {}).get("phase") == "Running")


@contextlib.asynccontextmanager
async def installed(node: Node, gpus: Sequence[int]) -> AsyncIterator[Keti]:
    """By the commands of KETI's guide, up to its Job. kube-scheduler places the modules themselves."""
    keti = Keti(node, gpus)
    async with node.cluster.scheduler():
        try:
            await keti.prepare()
            await keti.follow(until="testgpupod")
            await keti.reach_influx()
            yield keti
        finally:
            await keti.stop()
