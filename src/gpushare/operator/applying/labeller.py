"""Writes labels and taints of nodes: those that a policy wants, or none of ours.

Several nodes at a time, because 1,000 may appear together; a node that fails does not stop the others.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

from gpushare.core.annotations import node_gpus
from gpushare.core.facts import names
from gpushare.core.facts.model import Pin
from gpushare.kube import requests, resources
from gpushare.kube.errors import ApiError, KubeError
from gpushare.kube.requests import Request
from gpushare.operator import node_writes, nodes
from gpushare.operator.applying.writer import Writer, sentence
from gpushare.operator.desired.policy import Spec
from gpushare.operator.managed import Node
from gpushare.operator.seeing.sight import Nodes

AT_ONCE: Final = 16  # nodes
TURN: Final = 100  # nodes looked at before other tasks may run
SOLD_DIRECTLY: Final = (names.GPU_MEM, names.GPU_COUNT, names.MPS_GPU)


class Labeller:
    def __init__(self, writer: Writer, seen: Nodes) -> None:
        self._writer, self._seen = writer, seen

    async def label(self, spec: Spec) -> list[str]:
        """What could not be written."""
        return await self._write(lambda node: node_writes.writes(node, nodes.wanted(node, spec)))

    async def take_back(self) -> list[str]:
        """All of ours, from every node."""
        return await self._write(lambda node: [*node_writes.taken_back(node), *_published(node)])

    async def _write(self, wanted: Callable[[Node], list[Request]]) -> list[str]:
        todo = []
        for count, node in enumerate(list(self._seen.found.values()), 1):
            if wanted(node):
                todo.append(node)
            if count % TURN == 0:
                await asyncio.sleep(0)
        limit, failures = asyncio.Semaphore(AT_ONCE), list[str]()

        async def one(node: Node) -> None:
            async with limit:
                try:
                    await self._settle(node, wanted)
                except KubeError as error:
                    failures.append(f"{node.metadata.name}: labels cannot be written: {sentence(error)}")

        await _all(one(node) for node in todo)
        return sorted(failures)

    async def _settle(self, node: Node, wanted: Callable[[Node], list[Request]]) -> None:
        """Each write changes the version that the next one names, so what is left is asked for after each."""
        for _ in range(len(wanted(node))):
            todo = wanted(self._seen.found.get(node.metadata.name, node))
            if not todo:
                return
            try:
                self._seen.put(await self._writer.fetch(todo[0], Node))
            except ApiError as error:
                if error.status not in (404, 409):  # it has changed, or is gone: the watch shows it, and wakes us
                    raise
                return


def _published(node: Node) -> list[Request]:
    """What takes back what the node part says of a node, and sells there without kubelet."""
    name, capacity = node.metadata.name, node.status.capacity or {}
    if names.NODE_GPUS not in (node.metadata.annotations or {}):
        return []
    facts = node_gpus.read(node, frozenset())
    sold = SOLD_DIRECTLY if facts is None or not facts.nvidia_whole else (*SOLD_DIRECTLY, names.NVIDIA_GPU)
    nothing = {resource: None for resource in sold if resource in capacity}
    found = []
    if nothing and (facts is None or facts.pin is Pin.DIRECT):  # first: the annotation tells whose they are
        found.append(requests.patch_status(resources.NODES, "", name, {"capacity": nothing, "allocatable": nothing}))
    found.append(requests.patch(resources.NODES, "", name, {"metadata": {"annotations": {names.NODE_GPUS: None}}}))
    return found


async def _all(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    async with asyncio.TaskGroup() as tasks:
        for one in work:
            tasks.create_task(one)
