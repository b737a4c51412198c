"""This node's object and its pods, kept up to date by two watches; and the wait until both are known.

A cluster that is away is waited for, at the start and later. A cluster that answers and does not let us in is not:
after `limit` seconds the process ends with the reason.
"""

import asyncio
from typing import Any, Final

from gpushare.core.facts import objects
from gpushare.kube import failures, resources
from gpushare.kube.client import Api
from gpushare.kube.labels import this_node
from gpushare.kube.labels.this_node import ThisNode
from gpushare.kube.reflector import Reflector
from gpushare.node import pods
from gpushare.node.pods import NodePods
from gpushare.obs import errors, log

# Seconds, longer than the extender's: there may be thousands of nodes. Most API servers send something on a watch every
# minute, so most are never asked; and a watch that is opened again from an old revision may cost a list.
SILENCE, PATIENCE = 75.0, 300.0
LOG_SECONDS: Final = 1.0  # then the log says what is waited for
TICK = 0.2

logger = log.get(__name__)


class Watches:
    def __init__(self, api: Api, node: str) -> None:
        self.this_node, self.pods = ThisNode(node), NodePods()
        self.reflectors: dict[str, Reflector[Any]] = {
            "node": Reflector(
                api, resources.NODES, objects.Node, self.this_node, key=lambda n: n.metadata.name,
                query=this_node.query(node), silence=SILENCE, patience=PATIENCE,
            ),
            "pods": Reflector(
                api, resources.PODS, pods.Pod, self.pods, key=lambda p: p.metadata.uid, query=pods.query(node),
                silence=SILENCE, patience=PATIENCE,
            ),
        }  # fmt: skip
        self._api = api

    async def synced(self, limit: float) -> objects.Node:
        """This node's object, as soon as its pods are known, too."""
        loop = asyncio.get_running_loop()
        start, logged = loop.time(), False
        while self.this_node.node is None or self.waits_for():
            waited = loop.time() - start
            if waited > LOG_SECONDS and not logged:
                logger.info("waiting", what=self.waits_for())
                logged = True
            if waited > limit:
                self._give_up_if_hopeless()
            await asyncio.sleep(TICK)
        return self.this_node.node

    def waits_for(self) -> str:
        """What is not known yet; empty if everything is."""
        for name, reflector in self.reflectors.items():
            if not reflector.synced:
                return f"{name}: {reflector.failure}" if reflector.failure else name
        return f'node "{self.this_node.name}"' if self.this_node.node is None else ""

    def _give_up_if_hopeless(self) -> None:
        for reflector in self.reflectors.values():
            failure = reflector.failure if not reflector.synced else None
            if failure is not None and failures.needs_help(failure, waits_for_connection=True):
                raise failures.explain(failure, self._api.access)
        if self.reflectors["node"].synced and self.this_node.node is None:
            what, why = f'no node "{self.this_node.name}"', "the cluster has no node of that name"
            raise errors.UserError(what, why, "--node-name NAME or NODE_NAME, one of: kubectl get nodes")
