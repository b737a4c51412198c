"""The real node knows CDI: a device that a plugin only names comes into the container as its CDI file says."""

from tests.e2e.harness import cdi_plugin, images
from tests.e2e.harness.cluster import Cluster
from tests.e2e.harness.kubelet import Node
from tests.support import api_client
from tests.support.objects import Object

LOOK = "for file in /dev/thing-*; do test -c $file && echo ${file#/dev/thing-}; done; echo variable ${THING-none}"


async def test_a_container_has_the_device_it_was_given_and_no_other(
    cluster: Cluster, node: Node, api: api_client.Api
) -> None:
    pods = {"first": {cdi_plugin.RESOURCE: 1}, "second": {cdi_plugin.RESOURCE: 1}, "other": {}}
    where = ["--namespace", api.namespace]
    async with cdi_plugin.running(node), cluster.scheduler():
        for name, limits in pods.items():
            await api.create(api.pods, _pod(name, limits))
        await cluster.kubectl("wait", *where, "--for=condition=Ready", "pods", "--all", "--timeout=60s")
        seen = {name: await cluster.kubectl("exec", *where, name, "--", "sh", "-c", LOOK) for name in pods}
    assert sorted([seen["first"], seen["second"]]) == [f"{device}\nvariable {device}\n" for device in cdi_plugin.IDS]
    assert seen["other"] == "variable none\n"


def _pod(name: str, limits: dict[str, int]) -> Object:
    container = {"name": "main", "image": images.SMALL, "resources": {"limits": limits}}
    return {"metadata": {"name": name}, "spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}
