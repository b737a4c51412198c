"""The controllers of the embedded cluster: create and delete the pods of Deployments and Jobs, collect garbage.

They run in the server's process and write through its registry. `deployments` and `jobs` decide what should happen;
this file does it, for each owner that a change affects. Pods are found by their owner reference only: none is adopted.
"""

from collections.abc import Iterable
from typing import Final

from gpushare.devcluster import lifecycle
from gpushare.devcluster.apiserver import checks, patches, registry, status
from gpushare.devcluster.apiserver.kinds import table
from gpushare.devcluster.apiserver.kinds.table import Kind
from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.devcluster.apiserver.status import Object
from gpushare.devcluster.apiserver.store import Entry
from gpushare.devcluster.controllers import deployments, jobs, owned
from gpushare.devcluster.events import EventWriter
from gpushare.devcluster.following import Difference, Follower

PODS: Final = table.BY_RESOURCE["pods"]
DEPLOYMENTS: Final = table.BY_RESOURCE["deployments.apps"]
JOBS: Final = table.BY_RESOURCE["jobs.batch"]
GPU_NODES: Final = table.BY_RESOURCE["gpunodes.gpushare.io"]
OWNERS: Final = {kind.kind: kind for kind in (DEPLOYMENTS, JOBS)}
RESOURCES: Final = (
    "nodes",
    DEPLOYMENTS.resource,
    JOBS.resource,
    PODS.resource,
)  # owners come before their pods
FOREGROUND, ORPHAN = registry.FINALIZERS["Foreground"], registry.FINALIZERS["Orphan"]


class Controllers:
    def __init__(self, server: ApiServer) -> None:
        self._registry, self._store = server.registry, server.store
        self._follower = Follower(server.store, server.hub, RESOURCES)
        self._owners: dict[str, tuple[Kind, Entry]] = {}  # by uid
        self._pods: dict[str, dict[str, Object]] = {}  # by the uid of their owner, then by key
        # By the uid of the job, then of the pod: did it succeed? None: the controller deleted it.
        self._ended: dict[str, dict[str, bool | None]] = {}
        self._events = {
            kind.kind: EventWriter(server.registry, f"{kind.kind.lower()}-controller") for kind in OWNERS.values()
        }

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            for uid in self._affected(await self._follower.differences()):
                self._reconcile(uid)

    def _affected(self, differences: Iterable[Difference]) -> list[str]:
        """Notes what changed. Returns the uids of the owners to reconcile."""
        affected: dict[str, None] = {}
        for difference in differences:
            if difference.resource == "nodes":
                if difference.before and not difference.after:
                    self._delete_pods_of(difference.before.key)
                    self._delete_gpu_node_of(difference.before)
            elif difference.resource == PODS.resource:
                affected |= dict.fromkeys(self._note_pod(difference))
            else:
                affected[self._note_owner(difference)] = None
        return list(affected)

    def _note_owner(self, difference: Difference) -> str:
        if difference.after:
            self._owners[difference.after.uid] = table.BY_RESOURCE[difference.resource], difference.after
            return difference.after.uid
        assert difference.before is not None, "an object that is gone was there before"
        del self._owners[difference.before.uid]
        self._ended.pop(difference.before.uid, None)
        return difference.before.uid

    def _note_pod(self, difference: Difference) -> list[str]:
        """Returns the owners it had and has."""
        owners: list[str] = []
        for entry in (difference.before, difference.after):
            pod = checks.stored(PODS, entry) if entry else None
            owner = owned.controller(pod) if pod else None
            if entry and pod and owner and owner["kind"] in OWNERS:
                pods = self._pods.setdefault(owner["uid"], {})
                pods.pop(entry.key, None)
                if entry is difference.after:
                    pods[entry.key] = pod
                if owner["kind"] == JOBS.kind:
                    self._note_end(owner["uid"], pod, gone=difference.after is None)
                if not pods:
                    del self._pods[owner["uid"]]
                owners.append(owner["uid"])
        return owners

    def _note_end(self, job: str, pod: Object, gone: bool) -> None:
        """A pod that is deleted before its end has failed. The first end that is noted counts."""
        phase = lifecycle.phase(pod)
        if job in self._owners and (phase in lifecycle.ENDED or lifecycle.is_terminating(pod) or gone):
            self._ended.setdefault(job, {}).setdefault(pod["metadata"]["uid"], phase == "Succeeded")

    def _reconcile(self, uid: str) -> None:
        pods = list(self._pods.get(uid, {}).values())
        if uid not in self._owners:
            self._delete(pods)
            return
        kind, entry = self._owners[uid]
        owner = checks.stored(kind, entry)
        if lifecycle.is_terminating(owner):
            self._finalize(kind, owner, pods)
        elif kind is DEPLOYMENTS:
            self._do(kind, owner, deployments.steps(owner, pods), deployments.labels(owner))
            self._write(kind, owner, deployments.status(owner, pods, self._registry.now()))
        else:
            self._reconcile_job(owner, pods)

    def _reconcile_job(self, job: Object, pods: list[Object]) -> None:
        ended = self._ended.setdefault(job["metadata"]["uid"], {})
        results = list(ended.values())
        succeeded, failed = results.count(True), results.count(False)
        end = jobs.outcome(job, pods, succeeded, failed)
        steps = jobs.steps(job, pods, succeeded, end)
        ended |= dict.fromkeys((pod["metadata"]["uid"] for pod in steps.delete), None)
        self._do(JOBS, job, steps, {})
        if end and end != jobs.recorded_end(job):
            self._events[JOBS.kind].write(JOBS, job, *jobs.EVENTS[end])
        self._write(JOBS, job, jobs.status(job, pods, succeeded, failed, end, self._registry.now()))

    def _do(self, kind: Kind, owner: Object, steps: owned.Steps, labels: Object) -> None:
        meta, event = owner["metadata"], self._events[kind.kind].write
        for pod in self._delete(steps.delete):
            event(kind, owner, "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")
        for _ in range(steps.create):
            pod = owned.pod(kind, owner, labels)
            try:
                self._registry.create(PODS, meta["namespace"], pod)
            except status.ApiError as error:
                event(kind, owner, "FailedCreate", f"Error creating: {error}", type_="Warning")
                return
            event(kind, owner, "SuccessfulCreate", f"Created pod: {pod['metadata']['name']}")

    def _write(self, kind: Kind, owner: Object, new_status: Object) -> None:
        meta = owner["metadata"]
        self._registry.update(kind, meta["namespace"], meta["name"], owner | {"status": new_status}, "status")

    # Garbage

    def _finalize(self, kind: Kind, owner: Object, pods: list[Object]) -> None:
        """An owner that is being deleted waits for its pods or gives them up, as the deletion asked."""
        meta = owner["metadata"]
        finalizers = meta.get("finalizers") or []
        if ORPHAN in finalizers:
            for pod in filter(self._is_there, pods):
                self._disown(pod, meta["uid"])
        elif FOREGROUND in finalizers:
            self._delete(pods)
            if pods:
                return
        else:
            return
        others = [name for name in finalizers if name not in (ORPHAN, FOREGROUND)]
        change = {"metadata": {"finalizers": others or None}}
        self._registry.patch(kind, meta["namespace"], meta["name"], patches.MERGE, change)

    def _disown(self, pod: Object, uid: str) -> None:
        meta = pod["metadata"]
        others = [reference for reference in meta["ownerReferences"] if reference["uid"] != uid]
        change = {"metadata": {"ownerReferences": others or None}}
        self._registry.patch(PODS, meta["namespace"], meta["name"], patches.MERGE, change)

    def _delete(self, pods: Iterable[Object]) -> list[Object]:
        """Deletes those that are there and not being deleted yet. Returns them."""
        staying = [pod for pod in pods if not lifecycle.is_terminating(pod) and self._is_there(pod)]
        for pod in staying:
            self._registry.delete(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"], {})
        return staying

    def _is_there(self, pod: Object) -> bool:
        meta = pod["metadata"]
        entry = self._store.get(PODS.resource, table.key(PODS, meta["namespace"], meta["name"]))
        return entry is not None and entry.uid == meta["uid"]

    def _delete_pods_of(self, node: str) -> None:
        """The node is gone, so its pods are deleted."""
        for entry in list(self._store.shelf(PODS.resource).entries.values()):
            if entry.fields["spec.nodeName"] == node:
                namespace, _, name = entry.key.partition("/")
                self._registry.delete(PODS, namespace, name, {"gracePeriodSeconds": 0})

    def _delete_gpu_node_of(self, node: Entry) -> None:
        """Its owner is gone. One that has another owner by now stays."""
        found = self._store.get(GPU_NODES.resource, node.key)
        owners = found.obj()["metadata"].get("ownerReferences") or [] if found else []
        if owners and all(owner["uid"] == node.uid for owner in owners):
            self._registry.delete(GPU_NODES, "", node.key, {})
