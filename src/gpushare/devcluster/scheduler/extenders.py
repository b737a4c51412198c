"""How kube-scheduler asks an extender: filter, prioritize and bind over HTTP, in Go's spelling, by names of nodes.

Whatever goes wrong (no connection, no answer in time, a status other than 200, an `Error`, a node that was not
offered) is `Failed`: the scheduler takes it as an error and tries again. A failed prioritize only leaves out scores.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import aiohttp
import msgspec

from gpushare.core.facts import kinds
from gpushare.core.facts.intree import Pod
from gpushare.kube import answers

T = TypeVar("T")

CHOOSE = "choose"  # a filter that leaves only the best node
MAX_SCORE = 10  # of an extender; in-tree scores go to 100
_PER_POINT = 100 // MAX_SCORE
NOT_OFFERED = 'extender "{url}" claims a filtered node "{node}" which is not found in the input node list'


class Failed(Exception):
    """The extender gave no usable answer; the text says why."""


class Args(msgspec.Struct, rename="pascal"):
    pod: Pod
    node_names: Sequence[str]
    nodes: None = None


class BindArgs(msgspec.Struct, rename="pascal"):
    pod_name: str
    pod_namespace: str
    pod_uid: str = msgspec.field(name="PodUID")
    node: str


class FilterResult(msgspec.Struct, rename="pascal"):
    node_names: list[str] | None = None
    failed_nodes: dict[str, str] | None = None
    failed_and_unresolvable_nodes: dict[str, str] | None = None
    error: str = ""


class HostPriority(msgspec.Struct, rename="pascal"):
    host: str
    score: int


class BindResult(msgspec.Struct, rename="pascal"):
    error: str = ""


class Settings(NamedTuple):
    """The entry of an extender in a scheduler's configuration, as we ship it (deploy/scheduler)."""

    url: str
    filter_verb: str = CHOOSE
    weight: int = 1000
    timeout: float = 5.0  # seconds
    managed: frozenset[str] = frozenset(kinds.BY_RESOURCE)  # it is asked about pods with these resources


class Extender:
    def __init__(self, settings: Settings, session: aiohttp.ClientSession) -> None:
        self._settings, self._session = settings, session

    def interested(self, pod: Pod) -> bool:
        """Whether any container names a managed resource, even with 0."""
        needs = (c.resources for c in (*(pod.spec.containers or ()), *(pod.spec.init_containers or ())))
        return any(not self._settings.managed.isdisjoint({*(r.limits or ()), *(r.requests or ())}) for r in needs if r)

    async def filter(self, pod: Pod, nodes: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        """Which of the nodes are left, and why others are not."""
        answer = await self._ask(self._settings.filter_verb, Args(pod, nodes), FilterResult)
        if answer.error:
            raise Failed(answer.error)
        left = answer.node_names or []
        for node in left:
            if node not in nodes:
                raise Failed(NOT_OFFERED.format(url=self._settings.url, node=node))
        return left, (answer.failed_nodes or {}) | (answer.failed_and_unresolvable_nodes or {})

    async def prioritize(self, pod: Pod, nodes: Sequence[str]) -> dict[str, int]:
        """What to add to each node's score."""
        try:
            answer = await self._ask("prioritize", Args(pod, nodes), list[HostPriority])
        except Failed:
            return {}
        return {row.host: row.score * self._settings.weight * _PER_POINT for row in answer}

    async def bind(self, pod: Pod, node: str) -> None:
        meta = pod.metadata
        answer = await self._ask("bind", BindArgs(meta.name, meta.namespace, meta.uid, node), BindResult)
        if answer.error:
            raise Failed(answer.error)

    async def _ask(self, verb: str, body: object, kind: type[T]) -> T:
        url, seconds = f"{self._settings.url}/{verb}", self._settings.timeout
        limit, headers = aiohttp.ClientTimeout(total=seconds), {"Content-Type": "application/json"}
        try:
            async with self._session.post(
                url, data=msgspec.json.encode(body), headers=headers, timeout=limit
            ) as response:
                if response.status != 200:
                    raise Failed(f"failed {verb} with extender at URL {url}, code {response.status}")
                return msgspec.json.decode(await response.read(), type=kind)
        except (aiohttp.ClientError, OSError) as error:
            raise Failed(f'Post "{url}": {answers.unreachable(error, seconds)}') from error
        except msgspec.MsgspecError as error:
            raise Failed(f'Post "{url}": {error}') from error
