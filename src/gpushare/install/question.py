"""A pod that is made only so that kube-scheduler asks the extender about it, and what became of it.

It asks for 0 of GPU memory: then kube-scheduler asks the extender, on any cluster, also where no GPU is free or no GPU
node is there yet. Its annotation makes the extender refuse it, with a sentence that kube-scheduler writes into the pod.
So nothing is ever placed, and the sentence proves that the scheduler asked our extender and was understood.
"""

from typing import Final

from gpushare.core.facts import names, objects
from gpushare.install.entries import Object
from gpushare.kube import requests, resources
from gpushare.kube.client import Api
from gpushare.kube.errors import ApiError
from gpushare.kube.requests import Request

LABELS: Final = {"app": "gpushare", "component": "install-scheduler"}


class Question:
    """The pod that is only asked about."""

    def __init__(self, api: Api, namespace: str, scheduler: str) -> None:
        self._api, self._namespace, self._scheduler, self._name = api, namespace, scheduler, ""

    async def try_out(self) -> str:
        """The name of the scheduler that would place it. Nothing is made, but rights and admission are those of the
        real one."""
        path = resources.PODS.one_namespace(self._namespace)
        request = Request("POST", path, {"dryRun": "All"}, self._pod())
        return (await self._api.fetch(request, objects.Pod)).spec.scheduler_name or ""

    async def ask(self) -> None:
        made = await self._api.fetch(requests.create(resources.PODS, self._namespace, self._pod()), objects.Pod)
        self._name = made.metadata.name

    async def answer(self) -> tuple[bool, str]:
        """Whether the extender was asked, and if not, what the scheduler says. Raises Placed if it was bound."""
        pod = await self._api.fetch(requests.read(resources.PODS, self._namespace, self._name), objects.Pod)
        if pod.spec.node_name:
            raise Placed(pod.spec.node_name)
        condition = next((one for one in pod.status.conditions or () if one.type == "PodScheduled"), None)
        said = (condition.message if condition is not None else None) or ""
        return names.ASKED in said, said

    async def end(self) -> None:
        """Deletes it, and those of earlier runs that were killed."""
        query = {"labelSelector": ",".join(f"{key}={value}" for key, value in LABELS.items())}
        async for page, _ in self._api.list_pages(resources.PODS, objects.Pod, namespace=self._namespace, query=query):
            for pod in page:
                if names.ONLY_ASKED in (pod.metadata.annotations or ()):
                    await self._delete(pod.metadata.name)

    async def _delete(self, name: str) -> None:
        path = resources.PODS.item(self._namespace, name)
        try:
            await self._api.send(Request("DELETE", path, {"gracePeriodSeconds": "0"}))
        except ApiError as error:
            if error.status != 404:
                raise

    def _pod(self) -> Object:
        unprivileged = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        container = {
            "name": "asked",
            "image": "gpushare-only-asked",  # there is none of that name, and nothing would be pulled
            "imagePullPolicy": "Never",
            "resources": {"limits": {names.GPU_MEM: "0"}},
            "securityContext": unprivileged,
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "generateName": "gpushare-only-asked-",
                "labels": LABELS,
                "annotations": {names.ONLY_ASKED: "true"},
            },
            "spec": {
                "schedulerName": self._scheduler,
                "restartPolicy": "Never",
                "automountServiceAccountToken": False,
                "tolerations": [{"operator": "Exists"}],  # so that some node is left to ask about
                "securityContext": {
                    "runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [container],
            },
        }  # fmt: skip


class Placed(Exception):
    """The pod was bound: nobody asked the extender. The text is the node."""
