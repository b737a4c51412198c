"""etcd put back to an older copy while the extender runs: nothing is sold twice, and nobody waits for ever.

`back` has all of GPU 0, `waits` is not scheduled yet; etcd is copied. `back` is deleted and `waits` gets GPU 0; etcd is
put back: `back` has GPU 0 again, and `waits` is not bound. kube-scheduler is started anew, as Kubernetes' guide says.
"""

import asyncio
import json
import time
from typing import Any

import aiohttp
import pytest

from gpushare.core.facts import names
from tests.e2e.harness import objects, shipped
from tests.e2e.harness.cluster import Cluster
from tests.e2e.harness.figures import Figures

PODS = "/api/v1/namespaces/default/pods"
NODE, GPUS = "restored", [8000, 8000]
PATIENCE = 60.0  # seconds
GATE = "gpushare.io/e2e"
UNGATE = json.dumps([{"op": "remove", "path": "/spec/schedulingGates"}])
CHANGES = 200  # after the copy, so that revisions take a while to come back to where they were


@pytest.mark.parametrize("moved_on", [False, True], ids=["revisions go back", "revisions moved on and compacted"])
async def test_after_etcd_was_put_back_the_extender_counts_what_is_there(
    cluster: Cluster, figures: Figures, moved_on: bool
) -> None:
    await cluster.call("POST", "/api/v1/nodes", objects.node(NODE, gpus=GPUS, pin="plugin"))
    await _until(cluster, f"/api/v1/nodes/{NODE}", lambda node: not node["spec"].get("taints"))
    try:
        # Logs go by name, and what this one says is looked at.
        async with cluster.extender(name=f"extender-restored-{'on' if moved_on else 'back'}") as extender:
            async with cluster.scheduler():
                await _make(cluster, "back", 8000)
                assert await _gpus(cluster, "back") == ["0"]
                await _make(cluster, "waits", 4000, schedulingGates=[{"name": GATE}])
                await cluster.back_up()
                await cluster.call("DELETE", f"{PODS}/back", {"gracePeriodSeconds": 0})
                await _until_shown([], 0)
                await cluster.kubectl("patch", "pod", "waits", "--type=json", "-p", UNGATE)
                assert await _gpus(cluster, "waits") == ["0"]
                await _change_something(cluster)
            await cluster.restore(moved_on=moved_on)
            begun = time.monotonic()
            await _make(cluster, "new", 4000)
            async with cluster.scheduler():
                await _until_shown(["back"], 0)
                took = time.monotonic() - begun
                await cluster.kubectl("patch", "pod", "waits", "--type=json", "-p", UNGATE)
                assert await _gpus(cluster, "waits") == ["1"]
                assert await _gpus(cluster, "new") == ["1"]
            await _until_shown(["new", "waits"], 1)
            log = extender.log.read_text()
        told = await cluster.get("/api/v1/namespaces/default/events")
        assert "SecondExtender" not in {event["reason"] for event in told["items"]}
        assert ("etcd was restored from an older copy" in log) is not moved_on
        how = "moved on and compacted" if moved_on else "gone back"
        figures.say(f"etcd put back, revisions {how}", f"{took:.1f} s until the extender counts what is there")
    finally:
        for name in ("back", "waits", "new"):
            await cluster.kubectl("delete", "pod", name, "--ignore-not-found", "--force", "--grace-period=0")
        await cluster.kubectl("delete", "configmap", "changes", "--ignore-not-found")
        await cluster.kubectl("delete", "node", NODE)


async def _make(cluster: Cluster, name: str, amount: int, **spec: Any) -> None:
    pod = objects.pod(name=name, containers={"main": amount})
    pod["spec"] |= spec
    await cluster.call("POST", PODS, pod)


async def _gpus(cluster: Cluster, name: str) -> list[str]:
    """Of a pod's one container, as soon as it is bound."""
    pod = await _until(cluster, f"{PODS}/{name}", lambda pod: pod["spec"].get("nodeName"))
    return list(json.loads(pod["metadata"]["annotations"][names.ALLOCATION])["0"])


async def _change_something(cluster: Cluster) -> None:
    path, body = "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "changes"}}
    await cluster.call("POST", path, body)
    for number in range(CHANGES):
        await cluster.call("PUT", f"{path}/changes", body | {"data": {"number": str(number)}})


async def _until_shown(pods: list[str], gpu: int) -> None:
    """By the extender, on that GPU."""
    url = f"http://127.0.0.1:{shipped.EXTENDER_PORT}/gpushare-scheduler/inspect/{NODE}"
    async with asyncio.timeout(PATIENCE), aiohttp.ClientSession() as session:
        while True:
            async with session.get(url) as response:
                shown = await response.json()
            devices = shown["nodes"][0]["devs"] if shown["nodes"] else []
            if [sorted(pod["name"] for pod in device.get("pods", ())) for device in devices][gpu:][:1] == [pods]:
                return
            await asyncio.sleep(0.05)


async def _until(cluster: Cluster, path: str, condition: Any) -> Any:
    async with asyncio.timeout(PATIENCE):
        while True:
            found = await cluster.get(path)
            if condition(found):
                return found
            await asyncio.sleep(0.05)
