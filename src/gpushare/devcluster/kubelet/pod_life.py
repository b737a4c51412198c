"""The life of one pod on its node: it is admitted, its containers start, run and end, and it is deleted. Nothing runs.

`podstatus` makes the status; this file decides when it is written. A container's log is the env it was started with, so
that `kubectl logs` shows which GPUs it would see.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpushare.devcluster import lifecycle
from gpushare.devcluster.apiserver import checks
from gpushare.devcluster.apiserver.kinds import table
from gpushare.devcluster.apiserver.registry import Registry
from gpushare.devcluster.apiserver.status import Object
from gpushare.devcluster.events import EventWriter
from gpushare.devcluster.kubelet import podstatus
from gpushare.devcluster.kubelet.podstatus import Run

if TYPE_CHECKING:
    from gpushare.devcluster.kubelet.deviceplugins import DevicePlugins

PODS: Final = table.BY_RESOURCE["pods"]


@dataclass
class Context:
    """What all pods of all nodes have in common. `moment`: seconds a container takes to start, and a pod to end.
    `restart_seconds`: how long a crashed container waits. `plugins`: by node, where device plugins may register."""

    registry: Registry
    events: EventWriter
    moment: float
    restart_seconds: float
    plugins: "Mapping[str, DevicePlugins]"
    tasks: asyncio.TaskGroup


class PodLife:
    """`host`: the address of the node. `address`: of the pod, once it has one."""

    def __init__(self, pod: Object, context: Context, host: str = "", address: str = "") -> None:
        meta = pod["metadata"]
        self.namespace, self.name, self.uid = meta["namespace"], meta["name"], meta["uid"]
        self.node = pod["spec"]["nodeName"]
        self.environments: dict[str, dict[str, str]] = {}  # by container that has been started
        self.exits: dict[str, asyncio.Future[int]] = {}  # of the containers that run
        self._policy = pod["spec"].get("restartPolicy", "Always")
        self._context, self._registry = context, context.registry
        self._host, self._address, self._has_address = host, address, False
        self._began = ""
        self._runs = podstatus.runs(pod)
        self._task: asyncio.Task[None] | None = None
        self._terminating = False

    def start(self) -> None:
        self._task = self._context.tasks.create_task(self._live())

    def terminate(self, grace: int) -> None:
        """The pod is being deleted: it ends after a moment and is then removed."""
        if not self._terminating:
            self.cancel()
            self._terminating = True
            self._task = self._context.tasks.create_task(self._end(grace))

    def cancel(self) -> None:
        if self._task:
            self._task.cancel()

    def read(self) -> Object | None:
        """The pod as it is stored; None if it is gone, or another one has its name."""
        entry = self._registry.store.get(PODS.resource, table.key(PODS, self.namespace, self.name))
        return checks.stored(PODS, entry) if entry and entry.uid == self.uid else None

    async def _live(self) -> None:
        self._began = self._registry.now()
        if refusal := await self._admission_refusal():
            self._reject(refusal)
            return
        self._write()
        await asyncio.sleep(self._context.moment)
        self._has_address = True
        for run in self._runs:
            if run.sidecar:
                self._start_container(run)
            elif run.init:
                await self._run_container(run)
                if run.code:
                    return  # the pod has failed
        async with asyncio.TaskGroup() as containers:
            for run in self._runs:
                if not run.init:
                    containers.create_task(self._run_container(run))
        for run in self._runs:
            if run.sidecar:
                run.end(0, self._registry.now())
        self._write()

    async def _admission_refusal(self) -> str:
        """Why the node's device plugins refuse the pod; empty if they do not. Once they are asked the answer is waited
        for, even if the pod is deleted meanwhile."""
        pod, plugins = self.read(), self._context.plugins.get(self.node)
        if pod is None or plugins is None:
            return ""
        return await asyncio.shield(self._context.tasks.create_task(plugins.admit(pod)))

    async def _run_container(self, run: Run) -> None:
        """Until it has ended and is not restarted."""
        while True:
            self._start_container(run)
            run.end(await self._exit_code(run), self._registry.now())
            if not podstatus.restarts(run, self._policy):
                self._write()
                return
            run.wait_again()
            self._write()
            await asyncio.sleep(self._context.restart_seconds)

    def _start_container(self, run: Run) -> None:
        pod = self.read()
        if pod is None:
            return  # deleted a moment ago; this task is about to be cancelled
        run.start(self._registry.now())
        self._write()
        plugins = self._context.plugins.get(self.node)
        from_plugins = plugins.environment(self.uid, run.name) if plugins else {}
        own = podstatus.environment(self.read() or pod, run)
        self.environments[run.name] = from_plugins | own  # the pod's own value wins
        self._event(pod, "Started", "Container started (simulated)", run)

    async def _exit_code(self, run: Run) -> int:
        """Waits until the container ends: after its time, or when `exits` has an exit code for it."""
        seconds, code = podstatus.lifetime(run)
        ordered: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.exits[run.name] = ordered
        try:
            async with asyncio.timeout(seconds):
                return await ordered
        except TimeoutError:
            return code
        finally:
            del self.exits[run.name]

    async def _end(self, grace: int) -> None:
        if pod := self.read():
            for run in self._runs:
                if run.running:
                    self._event(pod, "Killing", f"Stopping container {run.name}", run)
        await asyncio.sleep(min(self._context.moment, grace))
        if self.read():
            self._registry.delete(PODS, self.namespace, self.name, {"gracePeriodSeconds": 0})

    def _write(self) -> None:
        pod = self.read()
        if pod is None:
            return
        address = self._address if self._has_address else ""
        status = podstatus.status(self._runs, started=self._began, address=address, host=self._host)
        status["conditions"] = lifecycle.with_conditions(pod["status"], status["conditions"], self._registry.now())
        self._update(pod, status)

    def _reject(self, why: str) -> None:
        """The pod fails and is never tried again."""
        if pod := self.read():
            status = podstatus.rejected(why, started=self._began)
            self._update(pod, status)
            self._context.events.write(PODS, pod, status["reason"], why, host=self.node, type_="Warning")

    def _update(self, pod: Object, status: Object) -> None:
        changed = pod | {"status": pod["status"] | status}
        self._registry.update(PODS, self.namespace, self.name, changed, "status")

    def _event(self, pod: Object, reason: str, message: str, run: Run) -> None:
        part = f"spec.{run.field}{{{run.name}}}"
        self._context.events.write(PODS, pod, reason, message, part=part, host=self.node)
