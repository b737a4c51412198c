"""The device plugin: gives containers their GPUs where the binding cannot. Wiring, read top to bottom.

kubelet asks `service` through sockets that `endpoint` keeps registered; `reconcile` corrects the table and the pods'
annotations afterwards. What pods hold is rebuilt at start from kubelet, pod specs and annotations: nothing is kept on
disk.
"""

import asyncio
import time
from pathlib import Path
from typing import Final, Literal

from gpushare.core.facts import kinds, objects
from gpushare.core.facts.model import NodeFacts, Unit
from gpushare.kube import loop
from gpushare.kube.client import Api
from gpushare.kube.errors import KubeError
from gpushare.kube.events import Recorder
from gpushare.kubelet import paths, podresources
from gpushare.node import kubelet_folder
from gpushare.node.deviceplugin import device_list
from gpushare.node.deviceplugin import kubelet_info as kubelets
from gpushare.node.deviceplugin.allocation.state import State
from gpushare.node.deviceplugin.environment import Visible
from gpushare.node.deviceplugin.list_stream import ListStream
from gpushare.node.deviceplugin.podlist import PodList
from gpushare.node.deviceplugin.reconcile import Calls, Reconciler, is_admitted
from gpushare.node.deviceplugin.service import Service
from gpushare.node.endpoint import Endpoint, Identity
from gpushare.node.pods import NodePods
from gpushare.obs import log
from gpushare.obs.errors import CLUSTER_NOT_ASKED, UserError

START_SECONDS: Final = 30
NO_LIST: Final = "kubelet's pod-resources socket is not there: {path}"
NO_LIST_WHY: Final = (
    "kubelet is down, or the folder is not mounted; without it gpushare cannot know which pod has which units"
)
NO_LIST_WAY: Final = "mount kubelet's pod-resources folder, as deploy/device-plugin-ds.yaml does"

logger = log.get(__name__)


class Plugin:
    """`set_gpus` must have been called before `run`."""

    def __init__(
        self,
        *,
        node: str,
        unit: Unit,
        api: Api,
        pods: NodePods,
        events: Recorder,
        kubelet: Path = Path(paths.ROOT),
        visible: Visible = "uuid",
    ) -> None:
        self._node, self._unit, self._api, self._pods, self._events = node, unit, api, pods, events
        self._pod_resources = kubelet / paths.POD_RESOURCES
        self.state, self.calls = State(unit), Calls(time.monotonic)
        sockets = kubelet_folder.SOCKETS
        self._lists = {resource: ListStream(self.state, kind=kinds.BY_RESOURCE[resource]) for resource in sockets}
        self._pod_list = PodList(api, node, self.state, self._relist)
        self.reconciler = Reconciler(
            self.state, lambda: podresources.ask(self._pod_resources), api, pods, self.calls, self._relist
        )
        self.services = {
            resource: Service(
                self.state, self._lists[resource], self.calls, self._pod_list, self.reconciler, self._relist,
                kind=kinds.BY_RESOURCE[resource], visible=visible,
            )
            for resource in sockets
        }  # fmt: skip
        self.endpoints = [
            Endpoint(resource, kubelet / paths.DEVICE_PLUGINS / sockets[resource], service, self._kubelet_is)
            for resource, service in self.services.items()
        ]
        self._kubelet: Identity | None = None
        self._kubelet_node: objects.Node | None = None  # what the node object says about its kubelet
        for uid in pods.pods:
            self._changed(uid)
        pods.listeners.append(self._changed)

    def set_gpus(self, facts: NodeFacts) -> None:
        """After each change of the GPUs, their health or the unit. Refuses a node with more units than kubelet
        takes."""
        device_list.check(self._node, facts.unit, facts.gpus)
        if facts.unit != self._unit:
            self._count_in(facts.unit)
        self.state.most = facts.limit or None  # kubelet may have been replaced by another version
        self.state.set_gpus(facts)
        self._relist()

    def _count_in(self, unit: Unit) -> None:
        """No pod with memory in the former unit is left, so kubelet no longer needs the ids of that unit."""
        self._unit = unit
        self.state.catalog.count_in(unit)
        self.reconciler.due()
        if self._kubelet_node is not None:
            self._apply_kubelet(self._kubelet_node)

    def held(self) -> dict[str, int]:
        """Units that pods hold, by GPU."""
        return self.state.table.held()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            if not await self._read_kubelet():
                tasks.create_task(loop.until_done(self._read_kubelet))
            await self._find_pod_resources()
            await self.reconciler.correct()
            tasks.create_task(self.reconciler.run())
            for endpoint in self.endpoints:
                tasks.create_task(endpoint.run())

    def _changed(self, uid: str) -> None:
        """The watch shows that a pod came, changed or went."""
        self._pod_list.pod_changed(uid)
        node_pod, grants = self._pods.pods.get(uid), self.state.table.of_pod(uid)
        if node_pod is not None:
            self.state.see(node_pod.facts)
        else:
            self.state.end(uid)
        ended = uid not in self.state.plans.pods
        if ended and grants:
            self._relist()
        if any(not grant.confirmed for grant in grants) and (ended or (node_pod is not None and is_admitted(node_pod))):
            self.reconciler.due()

    def _relist(self) -> None:
        if self.state.plans.facts is not None:
            for devices in self._lists.values():
                devices.update()

    def _kubelet_is(self, identity: Identity) -> None:
        """Before each registration: if kubelet's socket is another file, kubelet has restarted."""
        if self._kubelet is not None and self._kubelet != identity:
            self.state.kubelet_restarted()
        self._kubelet = identity

    async def _find_pod_resources(self) -> None:
        """Waits for a kubelet that is restarting. Aliyun's manifest does not mount this folder: then the wait ends in
        an error."""
        for _ in range(START_SECONDS):
            if self._pod_resources.exists():
                return
            logger.warn(NO_LIST.format(path=self._pod_resources))
            await asyncio.sleep(1.0)
        raise UserError(NO_LIST.format(path=self._pod_resources), NO_LIST_WHY, NO_LIST_WAY, CLUSTER_NOT_ASKED)

    async def _read_kubelet(self) -> Literal[True] | None:
        try:
            self._kubelet_node = await kubelets.read(self._api, self._node)
        except KubeError as error:
            logger.warn("cannot read the node", why=str(error))
            return None
        self._apply_kubelet(self._kubelet_node)
        return True

    def _apply_kubelet(self, node: objects.Node) -> None:
        kubelet = kubelets.judge(node, self._unit)
        self.state.most, self.state.cgpu_disabled = kubelet.most, kubelet.cgpu_disabled
        if kubelet.warning:
            self._events.record(
                kind="Node", namespace="", name=self._node, uid=self._node,
                type="Warning", reason=kubelets.COSTLY, message=kubelet.warning,
            )  # fmt: skip
            logger.warn(kubelet.warning)
