"""Counts what every pod holds, from API objects only and with arithmetic of its own, at every resource version.

Stands at the embedded API server's store: each change of a pod passes here before anybody else learns of it. What is
wrong is collected in `wrongs`, as sentences.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from gpushare.core.facts import names
from gpushare.devcluster.apiserver.server import ApiServer
from tests.support import embedded_objects
from tests.support.embedded_objects import Object

Amounts = dict[int, int]  # units by GPU index


class Auditor:
    def __init__(self, server: ApiServer) -> None:
        self.wrongs: list[str] = []
        self.bindings: dict[str, str] = {}  # uid -> node, once
        self.checks = 0
        self.fullest = 0.0
        self.on_bound: Callable[[Object], None] = lambda pod: None
        self.on_change: Callable[[Object | None, Object | None], None] = lambda before, after: None
        self._server = server
        self._totals: dict[str, list[int]] = {}
        self._held: dict[str, tuple[str, Amounts]] = {}  # uid -> node and what it holds there
        self._used: dict[str, Counter[int]] = defaultdict(Counter)
        tell_watches = server.store.changed

        def changed(resource: str) -> None:
            changes = server.store.shelf("pods").changes
            if resource == "pods" and changes:
                last = changes[-1]
                before, after = (None if entry is None else entry.obj() for entry in (last.before, last.after))
                self._see(before, after)
            tell_watches(resource)

        server.store.changed = changed

    def node(self, made: Object) -> None:
        published = json.loads(made["metadata"]["annotations"][names.NODE_GPUS])
        self._totals[made["metadata"]["name"]] = [gpu["total"] for gpu in published["gpus"]]
        embedded_objects.create(self._server, made)

    def used(self) -> dict[str, list[tuple[int, int]]]:
        """Used and total of each GPU by node."""
        return {
            name: [(self._used[name][i], total) for i, total in enumerate(totals)]
            for name, totals in self._totals.items()
        }

    def _see(self, before: Object | None, after: Object | None) -> None:
        pod = after or before
        assert pod is not None
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        was, now = _node_of(before), _node_of(after)
        if now and now != was:
            if was or uid in self.bindings:
                self.wrongs.append(f"{name} was bound twice: {self.bindings.get(uid)}, {now}")
            self.bindings[uid] = now
        self._count(uid, now, self._holds(after) if after else {})
        if now and not was and after is not None:
            self._check(now, name)
            self.on_bound(after)
        self.on_change(before, after)

    def _count(self, uid: str, node: str, amounts: Amounts) -> None:
        node_before, before = self._held.pop(uid, ("", {}))
        for gpu, amount in before.items():
            self._used[node_before][gpu] -= amount
        if node and amounts:
            self._held[uid] = (node, amounts)
            for gpu, amount in amounts.items():
                self._used[node][gpu] += amount

    def _check(self, node: str, cause: str) -> None:
        self.checks += 1
        for i, total in enumerate(self._totals[node]):
            used = self._used[node][i]
            self.fullest = max(self.fullest, used / total)
            if used > total:
                self.wrongs.append(f"{node} GPU {i}: {used} of {total} after {cause} was bound")

    def _holds(self, pod: Object) -> Amounts:
        """What a pod holds: until it has ended, whether or not somebody wants it gone."""
        node = _node_of(pod)
        if not node or pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            return {}
        notes = pod["metadata"].get("annotations") or {}
        try:
            written = _written(notes)
            spec = self._from_spec(pod, node, notes)
        except (KeyError, ValueError) as error:
            self.wrongs.append(f"{pod['metadata']['name']} on {node} has unusable annotations: {error!r}")
            return {}
        if written != spec:
            self.wrongs.append(f"{pod['metadata']['name']} on {node}: the annotation says {written}, its spec {spec}")
        if notes[names.ALIYUN_POD] != str(sum(spec.values())):
            self.wrongs.append(f"{pod['metadata']['name']}: {names.ALIYUN_POD} is {notes[names.ALIYUN_POD]}")
        return spec

    def _from_spec(self, pod: Object, node: str, notes: dict[str, str]) -> Amounts:
        """Amounts from the spec, GPUs from the annotations: the most that its containers need at any time."""
        apps, before = pod["spec"]["containers"], pod["spec"].get("initContainers") or []
        split = int(notes.get(names.GPU_COUNT, "1"))
        allocation = json.loads(notes[names.ALLOCATION])
        now: Counter[int] = Counter()
        most: Counter[int] = Counter()
        for position, container in [*enumerate(before, len(apps)), *enumerate(apps)]:
            limits = container["resources"]["limits"]
            whole, memory = _number(limits.get(names.GPU_COUNT)), _number(limits.get(names.GPU_MEM))
            stays = position < len(apps) or container.get("restartPolicy") == "Always"
            gpus = self._gpus(container, node, notes)
            if gpus is None:  # a device plugin's: kubelet takes init units from where the app containers will be
                gpus = [int(gpu) for gpu in allocation.get(str(position), {})] or self._pool(allocation)
            if len(gpus) != (whole or split) or len(set(gpus)) != len(gpus):
                raise ValueError(f"{container['name']} has GPUs {gpus}")
            for gpu in gpus:
                need = now[gpu] + (self._totals[node][gpu] if whole else memory // split)
                most[gpu] = max(most[gpu], need)
                if stays:
                    now[gpu] = need
        return dict(most)

    def _gpus(self, container: Object, node: str, notes: dict[str, str]) -> list[int] | None:
        for env in container.get("env") or []:
            key = env["valueFrom"]["fieldRef"]["fieldPath"].partition("'")[2].removesuffix("']")
            known = {embedded_objects.uuid(node, i): i for i in range(len(self._totals[node]))}
            return [known[uuid] for uuid in notes[key].split(",")]
        return None

    @staticmethod
    def _pool(allocation: dict[str, Amounts]) -> list[int]:
        return [int(next(iter(allocation["0"])))]


def _written(notes: dict[str, str]) -> Amounts:
    sums: Counter[int] = Counter()
    for shares in json.loads(notes[names.ALLOCATION]).values():
        for gpu, amount in shares.items():
            sums[int(gpu)] += amount
    return dict(sums)


def _node_of(pod: Object | None) -> str:
    node: Any = pod["spec"].get("nodeName") if pod else ""
    return node or ""


def _number(quantity: str | None) -> int:
    """As the API server writes it: 7000 is 7k."""
    return int((quantity or "0").replace("k", "000"))
