"""What people see of a real cluster: `kubectl inspect gpushare` and `kubectl gpushare why`, piped and on a terminal."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

from tests.e2e.harness import command_line, gpunodes, objects
from tests.e2e.harness.cluster import ADMIN
from tests.e2e.harness.figures import Figures
from tests.e2e.harness.world import World, gpus_of

HOLDERS = [{"name": f"holds-{i}", "containers": {"main": 5000}} for i in range(2)]
WAITER = {"name": "waits", "containers": {"main": 6000}}
TAINT = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
REFUSED = "no single GPU has 6000 MiB free"


async def test_a_real_cluster_is_shown_piped_and_on_a_terminal(world: World, figures: Figures) -> None:
    (node,) = await world.make_nodes(1, gpus=[8000, 8000])
    admin = world.cluster.kubeconfig(ADMIN, world.cluster.tokens[ADMIN])
    namespace = world.api.namespace
    async with world.cluster.extender(), world.cluster.scheduler(), world.kubelets():
        await world.watch.until_bound(*await world.make_pods(*HOLDERS))
        await world.make_pods(WAITER)
        await world.watch.until_refused("waits")
        piped = await command_line.piped(admin, "kubectl", "inspect", "gpushare", node)
        code, terminal = await command_line.on_a_terminal(admin, "kubectl", "inspect", "gpushare")
        directly = await command_line.piped(admin, "gpushare", "inspect", node)
        why = await command_line.piped(admin, "kubectl", "gpushare", "why", "waits", "-n", namespace)
        alone = await command_line.piped(admin, "gpushare", "why", f"{namespace}/waits")
        runs = await command_line.piped(admin, "kubectl", "gpushare", "why", "holds-0", "-n", namespace)
        on_terminal = await command_line.on_a_terminal(admin, "kubectl", "gpushare", "why", "waits", "-n", namespace)

    assert piped == directly == (0, piped[1], "")
    assert [line.split() for line in piped[1].splitlines()] == [
        ["NAME", "IPADDRESS", "GPU0(Allocated/Total)", "GPU1(Allocated/Total)", "GPU", "Memory(MiB)"],
        [node, "unknown", "5000/8000", "5000/8000", "10000/16000"],  # simulated nodes have no address
        ["-" * len(piped[1].splitlines()[2])],
        ["Allocated/Total", "GPU", "Memory", "In", "Cluster:"],
        ["10000/16000", "(62%)"],
    ]
    assert code == 0
    assert "5000/8000 █████" in terminal
    assert f"{REFUSED}; closest {node} GPU 0, 3000 short" in terminal
    assert why == alone == (1, why[1], "")
    assert why[1].startswith(f"waits is Pending: {REFUSED}.\n  asks  6000 MiB on one GPU (container main)\n")
    assert runs[0] == 0
    assert runs[1].startswith(f"holds-0 runs on {node} GPU ")
    assert on_terminal[0] == 1
    assert max(map(len, on_terminal[1].splitlines())) <= 120
    figures.say("inspect and why on a real cluster", f"as kubectl plugins and alone; {why[1].splitlines()[0]}")


async def test_what_nodes_sell_by_count_is_shown_and_explained_as_kube_scheduler_decides(world: World) -> None:
    sold = [{"resource": "nvidia.com/gpu", "replicas": 4, "sharing": "time-slicing"}]
    node, tainted = await world.make_various_nodes([{"gpus": [8000], "pin": "nvidia", "sold": sold}, {"nvidia": 2}])
    await world.patch(f"/api/v1/nodes/{tainted}", {"spec": {"taints": [TAINT]}})
    admin, namespace = world.cluster.kubeconfig(ADMIN, world.cluster.tokens[ADMIN]), world.api.namespace
    why = ("kubectl", "gpushare", "why", "-n", namespace)
    async with world.cluster.extender(), world.cluster.scheduler():
        holders = await world.make_pods(*({"name": f"r-{i}", "containers": {"main": {"nvidia": 1}}} for i in range(3)))
        await world.watch.until_bound(*holders)
        await world.make_pods({"name": "two", "containers": {"main": {"nvidia": 2}}})
        await world.watch.until_refused("two")
        shown = await command_line.piped(admin, "kubectl", "inspect", "gpushare", node, tainted, "-o", "wide")
        waits = await command_line.piped(admin, *why, "two")
        await world.make_pods({"name": "able", "containers": {"main": {"nvidia": 2}}, "tolerates": ["nvidia.com/gpu"]})
        await world.watch.until_bound("able")
        runs = await command_line.piped(admin, *why, "able")
        await world.delete_pod("r-0")  # one of those that were said to be in the way
        await world.watch.until_bound("two")
    assert [line.split() for line in shown[1].splitlines() if "nvidia.com/gpu " in line][:2] == [
        [node, "nvidia.com/gpu", "time-slicing", "1", "4", "3", "1", "3", "-"],
        [tainted, "nvidia.com/gpu", "-", "-", "2", "0", "2", "0", "-"],
    ]
    assert waits[0] == 1
    assert waits[1].startswith(f"two is Pending: {tainted} has room, but kube-scheduler keeps the pod off {tainted}.\n")
    assert "It would fit if it tolerated nvidia.com/gpu:NoSchedule." in waits[1]
    assert runs[0] == 0
    assert runs[1].startswith(f"able has 2 nvidia.com/gpu (container main) on {tainted}, but kubelet has not started")


async def test_who_may_read_one_namespace_only_learns_nothing_of_the_others(world: World, figures: Figures) -> None:
    """The pod's own condition is shown, and which right gives the full answer; no name of another tenant's pod."""
    await world.make_nodes(1, gpus=[8000])
    namespace, other = world.api.namespace, f"{world.api.namespace}-other"
    tenant = await _tenant(world)
    await world.api.create("/api/v1/namespaces", {"metadata": {"name": other}})
    try:
        async with world.cluster.extender(), world.cluster.scheduler():
            theirs = f"/api/v1/namespaces/{other}/pods"
            await world.api.create(theirs, objects.pod(name="secret-project", containers={"main": 5000}))
            while not (await world.api.get(f"{theirs}/secret-project")).body["spec"].get("nodeName"):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            await world.make_pods({"name": "waits", "containers": {"main": 4000}})
            await world.watch.until_refused("waits")
            alone = await command_line.piped(tenant, "gpushare", "why", "waits", "-n", namespace)
            plugin = await command_line.piped(tenant, "kubectl", "gpushare", "why", "waits", "-n", namespace)
            refused = await command_line.piped(tenant, "kubectl", "inspect", "gpushare")
    finally:
        await world.api.call("DELETE", f"/api/v1/namespaces/{other}/pods", {"gracePeriodSeconds": 0})
        await world.api.call("DELETE", f"/api/v1/namespaces/{other}")
    for code, said, note in (alone, plugin):
        assert code == 1
        assert said.startswith("waits is Pending")
        assert "--clusterrole=gpushare-view" in note
        assert "secret" not in said + note
    assert refused[:2] == (3, "")
    assert refused[2].startswith("error: not allowed: list nodes")
    figures.say("a user with rights in one namespace", f"{alone[1].splitlines()[0]} {alone[2].splitlines()[0]}")


async def _tenant(world: World) -> Path:
    """A kubeconfig of somebody who may read pods and events of the world's own namespace."""
    namespace = world.api.namespace
    for words in (
        ["serviceaccount", "tenant"],
        ["role", "tenant", "--verb=get,list,watch", "--resource=pods,events"],
        ["rolebinding", "tenant", "--role=tenant", f"--serviceaccount={namespace}:tenant"],
    ):
        await world.cluster.kubectl("create", *words, "-n", namespace)
    return await world.cluster.account_kubeconfig(namespace, "tenant")


async def test_what_a_pod_really_uses_is_shown_beside_what_it_asked(world: World) -> None:
    """The GPUNode is written as a node part writes it; the pod's uid says whose figures they are."""
    (node,) = await world.make_nodes(1, gpus=[8000, 8000])
    admin, namespace = world.cluster.kubeconfig(ADMIN, world.cluster.tokens[ADMIN]), world.api.namespace
    async with gpunodes.installed(world.cluster), world.cluster.extender(), world.cluster.scheduler(), world.kubelets():
        await world.watch.until_bound(*await world.make_pods({"name": "eats", "containers": {"main": 3000}}))
        pod = world.watch.pods["eats"]
        (gpu,) = gpus_of(pod)
        using = {"namespace": namespace, "pod": "eats", "uid": pod["metadata"]["uid"], "container": "main"}
        gpus = [
            {"index": i, "uuid": f"GPU-{node}-{i}", "usedMiB": 4100 if i == gpu else 100, "utilization": 10 * i,
             "containers": [{**using, "grantedMiB": 3000, "usedMiB": 4000}] if i == gpu else []}
            for i in range(2)
        ]  # fmt: skip
        sampled = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        kind = {"apiVersion": "gpushare.io/v1alpha1", "kind": "GPUNode", "metadata": {"name": node}}
        await world.api.create(gpunodes.PATH, kind)
        await world.patch(f"{gpunodes.PATH}/{node}/status", {"status": {"sampledAt": sampled, "gpus": gpus}})
        summary = await command_line.piped(admin, "kubectl", "inspect", "gpushare", node, "-o", "wide")
        details = await command_line.piped(admin, "gpushare", "inspect", node, "-d", "-o", "wide")
        code, terminal = await command_line.on_a_terminal(admin, "kubectl", "inspect", "gpushare", node, "-d")
        why = await command_line.piped(admin, "kubectl", "gpushare", "why", "eats", "-n", namespace)
        (told,) = (await world.ask(f"inspect/{node}"))["nodes"]
    assert summary[1].splitlines()[1].split()[-2:] == ["4200", "5%"]
    assert "4000, over by 1000" in details[1]
    sentence = f"{namespace}/eats uses 4000 MiB on {node} GPU {gpu}, 1000 MiB more than it asked."
    assert sentence in details[1].splitlines()
    assert (code, sentence in terminal) == (0, True)
    assert why[1].splitlines()[1].startswith("  uses  4000 of 3000 MiB (main), sampled ")
    assert why[1].splitlines()[2] == "  over  1000 MiB more than it asked (main)"
    assert [device.get("usedMiB") for device in told["devs"]] == [g["usedMiB"] for g in gpus]
    assert [code for code, *_ in (summary, details, why)] == [0, 0, 0]
