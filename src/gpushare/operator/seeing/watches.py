"""All watches of the operator: policies, nodes, pods of ours, and everything it made, by our label.

Kinds that a cluster may lack are watched when they are there. Watches are silent for long, and the operator need not
know within seconds that one is dead, so it asks less often than a scheduler does.
"""

import asyncio
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from gpushare.core.facts import names
from gpushare.kube import client, resources
from gpushare.kube.errors import KubeError
from gpushare.kube.reflector import Reflector
from gpushare.operator.managed import Node
from gpushare.operator.seeing import sight
from gpushare.operator.seeing.discovery import MAY_BE_MISSING
from gpushare.operator.seeing.kinds import KINDS, Kind
from gpushare.operator.seeing.models import Live, Pod, Policy

SILENCE, PATIENCE = 75.0, 300.0  # seconds
OURS: Final = {"labelSelector": "=".join(names.MANAGED_BY)}


class Seen(NamedTuple):
    policies: sight.Policies
    nodes: sight.Nodes
    owned: sight.Owned
    pods: sight.Pods


def seen(wake: sight.Wake) -> Seen:
    return Seen(sight.Policies(wake), sight.Nodes(wake), sight.Owned(wake), sight.Pods(wake))


class Watches:
    """`run` once; `serve` whenever it is known which kinds are there."""

    def __init__(self, api: client.Api, namespace: str, seen: Seen) -> None:
        self._api, self._namespace, self._seen = api, namespace, seen
        self.policies = _watch(api, resources.CLUSTER_POLICIES, Policy, seen.policies)
        self._always = [
            self.policies,
            _watch(api, resources.NODES, Node, seen.nodes),
            Reflector(
                api, resources.PODS, Pod, seen.pods, key=lambda pod: pod.metadata.uid, namespace=namespace, query=OURS,
                silence=SILENCE, patience=PATIENCE,
            ),
        ]  # fmt: skip
        self._owned: dict[str, list[Reflector[Live]]] = {}
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """For ever."""
        async with asyncio.TaskGroup() as self._tasks:
            for one in self._always:
                self._tasks.create_task(one.run())
            await asyncio.Event().wait()

    def serve(self, served: frozenset[str]) -> None:
        """Begins to watch the kinds that are not watched yet."""
        assert self._tasks is not None
        for kind in KINDS:
            if kind.name not in self._owned and (kind.served_as in served or kind.served_as not in MAY_BE_MISSING):
                self._owned[kind.name] = [self._of(kind, namespace) for namespace in self._namespaces(kind)]
                for one in self._owned[kind.name]:
                    self._tasks.create_task(one.run())

    def waiting(self, served: frozenset[str]) -> list[KubeError | None]:
        """One for each watch that has no list yet: why, or None if it only takes a moment."""
        return [one.failure for one in self._needed(served) if not one.synced]

    def _needed(self, served: frozenset[str]) -> Iterator[Reflector[Any]]:
        yield from self._always
        for kind in KINDS:
            if kind.served_as in served or kind.served_as not in MAY_BE_MISSING:
                yield from self._owned.get(kind.name, ())

    def _namespaces(self, kind: Kind) -> list[str]:
        if not kind.resource.namespaced:
            return [""]
        return sorted({self._namespace, kind.elsewhere} - {""})

    def _of(self, kind: Kind, namespace: str) -> Reflector[Live]:
        return Reflector(
            self._api, kind.resource, Live, self._seen.owned.of(kind.name, namespace),
            key=lambda live: live.metadata.name, namespace=namespace, query=OURS,
            silence=SILENCE, patience=PATIENCE,
        )  # fmt: skip


def _watch(api: client.Api, resource: resources.Resource, kind: type[Any], sink: Any) -> Reflector[Any]:
    return Reflector(
        api, resource, kind, sink, key=lambda item: item.metadata.name, silence=SILENCE, patience=PATIENCE
    )  # fmt: skip
