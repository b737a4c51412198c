"""KETI's guide, followed command by command on a real kubelet, and what its users then do.

The commands are those of the guide itself (data/keti-steps.txt), run in its order; what changes the machine or is typed
into an editor is skipped. The tests are the life of one installation, from top to bottom: it is installed, KETI's Job
runs, load moves pods, the collector is lost, and in the end everything is removed.
"""

import asyncio
import collections
import contextlib
import re
import time
from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest

from gpushare.core.explain import event_texts
from gpushare.core.facts import names, vitals
from gpushare.core.placement import fit
from tests.e2e.harness import events, keti, shipped
from tests.e2e.harness.cluster import NODE
from tests.e2e.harness.figures import Figures
from tests.e2e.harness.installation import held
from tests.e2e.harness.keti import Keti, KetiWorld
from tests.e2e.harness.kubelet import Node
from tests.e2e.harness.world import gpus_of
from tests.support import pod_watch, wait
from tests.support.api_client import Api
from tests.support.nvml import state
from tests.support.objects import Object

GPUS, SLOTS = [16000, 16000], 10
COLUMNS = 6  # of a whole row: time, three figures, node, GPUs
BUSY: Object = {"util": "96 70", "temp": 84, "power": 68_000, "used": 9000 * state.MIB}
IDLE_PERCENT, BUSY_PERCENT = 0, 96
FIGURE = "utilization"
SMALL_SHARE: Object = {names.SLOT_MEMORY[0]: "100Mi"}
ANOTHER, ANOTHER_PORT = "another-scheduler", 12399
ACCOUNTS = "system:serviceaccount:gpu:"
JOB = "/apis/batch/v1/namespaces/userpod/jobs/nbody-benchmark-mps-test"
STALE_SECONDS = vitals.HEARTBEAT_SECONDS + vitals.SLACK_SECONDS + 4  # sampled every second


class Lost:
    """When the collector was."""

    at = 0.0


@pytest.fixture(scope="module")
def installed(node: Node) -> Iterator[Keti]:
    yield from held(keti.installed(node, GPUS))


@pytest.fixture
async def world(installed: Keti, api: Api) -> AsyncIterator[KetiWorld]:
    """Its GPUs are idle."""
    installed.show()
    shown = pod_watch.PodWatch(api)
    watching = asyncio.create_task(shown.run())
    world = KetiWorld(installed.cluster, api, shown)
    try:
        yield world
        await world.clean_up()
        assert not watching.done(), watching.exception()
    finally:
        watching.cancel()


# The guide


def test_every_command_of_the_guide_was_run_and_shows_what_it_shows_there(installed: Keti, figures: Figures) -> None:
    skipped = [done.step.command.split()[0] for done in installed.done if not done.printed]
    assert skipped == list(keti.NOT_HERE)
    shown = {done.step.command: done for done in installed.done if done.step.shown}
    for command in ("kubectl get serviceaccount -A", "kubectl get configmap -A"):
        printed = [_columns(line) for line in shown[command].printed.splitlines()]
        for line in shown[command].step.shown[1:]:
            namespace, name, number, _ = _columns(line)
            (row,) = (row for row in printed if row[:2] == [namespace, name])
            assert command.endswith("serviceaccount -A") or row[2] == number
    pods = shown["kubectl get po -A"]
    for line in pods.step.shown[1:]:
        namespace, name, ready, status, *_ = _columns(line)
        (row,) = (row for row in map(_columns, pods.printed.splitlines()) if _module(row[1]) == _module(name))
        two = _module(name) == "keti-gpu-scheduler"  # kube-scheduler and the extender are a container each
        assert (row[0], row[2], row[3]) == (namespace, "2/2" if two else ready, status)
    figures.say(
        "KETI's guide, its commands as they are", f"{len(installed.done)} commands, {len(skipped)} not for here"
    )


def _columns(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.strip())


def _module(pod: str) -> str:
    """The name of a pod without what Kubernetes adds to it."""
    return re.sub(r"(-[a-z0-9]{8,10})?-[a-z0-9]{5}$", "", pod)


async def test_ketis_job_runs_on_the_gpu_that_does_less_with_mps_inside(installed: Keti, figures: Figures) -> None:
    installed.show({0: BUSY})
    await installed.until_measured(utilization=[BUSY_PERCENT, IDLE_PERCENT])
    await installed.follow()

    async def ended() -> Object | None:
        status: Object = (await installed.cluster.get(JOB))["status"]
        assert not status.get("failed"), status
        return status if status.get("succeeded") else None

    await wait.eventually_asked(ended, "the Job has succeeded", keti.PATIENCE)
    pods = await installed.cluster.get("/api/v1/namespaces/userpod/pods")
    (pod,) = pods["items"]
    printed = await installed.cluster.kubectl("logs", "--namespace=userpod", pod["metadata"]["name"])
    seen = dict(line.split("=", 1) for line in printed.splitlines() if re.match(r"[A-Z_]+=", line))
    assert seen[names.VISIBLE_DEVICES] == pod["metadata"]["annotations"][names.UUID] == state.uuid(1)
    assert seen[names.MPS_PIPE] == names.MPS_PIPE_FOLDER
    assert seen[names.MPS_LIMIT] == f"0={GPUS[1] // SLOTS}M"
    assert _mounted(printed).count(names.MPS_PIPE_FOLDER) == 1, "what is written by hand is not there twice"
    assert names.SHM_FOLDER in _mounted(printed)
    assert "nbody -benchmark -numdevices=1 -numbodies=1982000" in printed
    kept = {key: seen[key] for key in (names.VISIBLE_DEVICES, names.MPS_PIPE, names.MPS_LIMIT)}
    figures.say("KETI's Job, GPU 0 busy", f"ran on GPU 1 with {kept}")


def _mounted(text: str) -> list[str]:
    """Of /proc/self/mounts, where something is mounted."""
    return [words[1] for line in text.splitlines() if len(words := line.split()) == 6]


async def test_ketis_queries_find_the_figures_in_influxdb(installed: Keti) -> None:
    async def found() -> list[object] | None:
        """The last row, as the collector has written it. Its first samples lack what takes two of them."""
        asked = {"q": "SELECT last(*) FROM multimetric WHERE NodeName='real'", "db": "metric"}
        row: list[object] = []
        with contextlib.suppress(aiohttp.ClientConnectionError):  # it is starting
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://{keti.INFLUX}/query", params=asked) as response,
            ):
                (result,) = (await response.json())["results"]
            row = result["series"][0]["values"][0] if "series" in result else []
        return row if len(row) == COLUMNS else None

    row = await wait.eventually_asked(found, "figures in InfluxDB", keti.PATIENCE)
    assert row[1] == len(GPUS)
    assert row[4:] == [NODE, f"[{' '.join(state.uuid(number) for number in range(len(GPUS)))}]"]


async def test_a_change_of_the_policy_is_taken_and_told(installed: Keti, figures: Figures) -> None:
    await installed.run("kubectl apply -f deployments/gpu-scheduler-policy.yaml")

    async def told() -> str | None:
        listed = await installed.cluster.get("/api/v1/namespaces/gpu/events")
        mine = (e for e in listed["items"] if e["involvedObject"]["name"] == names.POLICY_CONFIGMAPS[1])
        return next((str(event["message"]) for event in mine if event["reason"] == "PolicyApplied"), None)

    said = await wait.eventually_asked(told, "an event about the policy", keti.PATIENCE)
    await installed.run("kubectl delete -f deployments/gpu-scheduler-policy.yaml")
    figures.say("gpu-scheduler-policy.yaml as shipped", said)


# What users do


async def test_load_on_one_gpu_moves_the_next_pod(installed: Keti, world: KetiWorld, figures: Figures) -> None:
    chosen: list[int] = []
    for number in (0, 1):
        installed.show({number: BUSY})
        measured = [BUSY_PERCENT if gpu == number else IDLE_PERCENT for gpu in range(len(GPUS))]
        await installed.until_measured(utilization=measured)
        await world.run({"name": f"beside-{number}", "containers": {"main": {"mps": 1}}})
        chosen += gpus_of(world.watch.pods[f"beside-{number}"])
    assert chosen == [1, 0]
    assert [gpu[FIGURE] for gpu in await installed.inspect()] == [IDLE_PERCENT, BUSY_PERCENT]
    words = ("--namespace", world.api.namespace, "beside-0", "--", "cat", "/proc/self/mounts")
    mounted = _mounted(await world.cluster.kubectl("exec", *words))
    assert {names.MPS_PIPE_FOLDER, names.SHM_FOLDER} <= set(mounted), "nobody wrote hostIPC or a volume"
    figures.say("load on GPU 0, then on GPU 1", f"the next pod went to GPU {chosen[0]}, then to GPU {chosen[1]}")


async def test_the_next_pod_is_placed_although_the_collector_is_gone(installed: Keti, world: KetiWorld) -> None:
    await installed.run("kubectl -n gpu delete daemonset keti-gpu-metric-collector --cascade=foreground --timeout=60s")
    Lost.at = time.monotonic()
    await world.run({"name": "after", "containers": {"main": {"mps": 1}}})


async def test_a_pod_that_asks_for_no_gpu_runs_and_gets_nothing_of_gpus(world: KetiWorld) -> None:
    await world.run({"name": "plain"})
    pod = world.watch.pods["plain"]
    assert pod["spec"]["schedulerName"] == keti.SCHEDULER
    assert names.UUID not in pod["metadata"].get("annotations", {})
    assert "volumes" not in pod["spec"] or {v["name"] for v in pod["spec"]["volumes"]}.isdisjoint({"gpushare-mps"})


async def test_the_11th_pod_of_a_gpu_with_10_slots_waits_with_a_sentence_and_comes_when_one_ends(
    world: KetiWorld, figures: Figures
) -> None:
    """Each asks for a share of both GPUs."""
    share: Object = {"containers": {"main": {"mps": len(GPUS)}}, "annotations": SMALL_SHARE}
    await world.run(*({"name": f"slot-{i}", **share} for i in range(SLOTS)))
    await world.make_pods({"name": "eleventh", **share})
    await world.watch.until_refused("eleventh")
    said = await events.until_event(world, "eleventh", event_texts.NO_GPU_FITS)
    assert "free MPS slot" in said
    assert all(pod["status"]["phase"] != "Failed" for pod in world.watch.pods.values()), "kubelet refused nobody"
    await world.delete_pod("slot-3", grace=1)
    await world.watch.until("the eleventh runs", lambda: world.runs("eleventh"), keti.PATIENCE)
    figures.say("the 11th pod of GPUs with 10 slots", f"waits: {said}")


async def test_memory_and_mps_shares_together_never_exceed_a_gpu(world: KetiWorld, figures: Figures) -> None:
    """More of both than fit. Memory is asked by clients of MPS that are made by hand: others cannot use these GPUs."""
    await world.make_pods({"name": "no-client", "containers": {"main": 100}})
    await world.watch.until_refused("no-client")
    assert fit.ONLY_MPS.message in pod_watch.refusal(world.watch.pods["no-client"])
    pods: list[Object] = [{"name": f"memory-{i}", "containers": {"main": 3500}, "clients": True} for i in range(8)]
    share = {names.SLOT_MEMORY[0]: "2000Mi"}
    pods += [{"name": f"share-{i}", "containers": {"main": {"mps": 1}}, "annotations": share} for i in range(8)]
    mixed = [pod for pair in zip(pods[:8], pods[8:], strict=True) for pod in pair]
    made = await world.make_pods(*mixed)

    def settled() -> bool:
        return all(world.runs(name) or pod_watch.refusal(world.watch.pods.get(name, {})) for name in made)

    await world.watch.until("each runs or waits", settled, keti.PATIENCE)
    running = [pod for name, pod in world.watch.pods.items() if world.runs(name)]
    given, shares = collections.Counter[int](), collections.Counter[int]()
    for pod in running:
        given.update(gpus_of(pod))
        shares.update(gpus_of(pod).keys() if names.UUID in pod["metadata"]["annotations"] else ())
    assert all(given[gpu] <= total for gpu, total in enumerate(GPUS)), given
    assert all(count <= SLOTS for count in shares.values())
    assert {name.partition("-")[0] for name in world.watch.pods if world.runs(name)} == {"memory", "share"}
    assert len(running) < len(made), "there were to be more than fit"
    figures.say(
        f"{len(made)} pods of memory and MPS shares on 2 GPUs of {GPUS[0]} MiB",
        f"{len(running)} run, {dict(given)} MiB given, {len(made) - len(running)} wait",
    )
    for name in [name for name in made if not world.runs(name)]:  # else they are bound while their namespace ends
        await world.delete_pod(name, grace=0)


async def test_a_second_extender_is_refused_by_the_script_and_noticed_if_it_runs(
    installed: Keti, world: KetiWorld, figures: Figures
) -> None:
    documents = shipped.documents("extender.yaml")
    (deployment,) = (one for one in documents if one["kind"] == "Deployment")
    deployment["spec"]["replicas"] = 0
    await world.cluster.apply(deployment)
    refused = await installed.try_("./3.create-gpu-scheduler.sh")
    await world.cluster.kubectl("delete", "deployment", "--namespace", shipped.NAMESPACE, shipped.EXTENDER)
    assert (refused.returncode, len(refused.stderr.splitlines())) == (1, 1)
    entry = {"urlPrefix": f"http://127.0.0.1:{ANOTHER_PORT}/gpushare-scheduler"}
    async with (
        world.cluster.extender(name=ANOTHER, port=ANOTHER_PORT),
        world.cluster.scheduler(name=ANOTHER, extender=entry),
    ):
        await world.run({"name": "theirs", "containers": {"main": {"mps": 1}}, "scheduler": ANOTHER})
        said = await events.until_event(world, "theirs", event_texts.SECOND_EXTENDER)
    figures.say("a second extender beside KETI's", f"the script: {refused.stderr.strip()} The event: {said}")


async def test_without_figures_pods_are_placed_by_what_is_known(
    installed: Keti, world: KetiWorld, figures: Figures
) -> None:
    """Old figures say that GPU 0 is idle and GPU 1 is busy; they do not count any more."""
    assert Lost.at, "the collector was lost before"
    await asyncio.sleep(max(0.0, Lost.at + STALE_SECONDS - time.monotonic()))
    share: Object = {"containers": {"main": {"mps": 1}}, "annotations": {names.SLOT_MEMORY[0]: "4000Mi"}}
    await world.run(*({"name": name, **share} for name in ("first", "second")))
    placed = [gpu for name in ("first", "second") for gpu in gpus_of(world.watch.pods[name])]
    assert sorted(placed) == [0, 1], "the GPU that holds less is the better one"
    assert not any(FIGURE in gpu for gpu in await installed.inspect()), "what is too old is unknown, and not 0"
    figures.say("without the collector", f"pods went to GPUs {placed}, by what is given out alone")


async def test_what_was_installed_can_be_removed_and_pods_keep_running(installed: Keti, world: KetiWorld) -> None:
    await world.run({"name": "stays", "containers": {"main": {"mps": 1}}})
    installed.node.keep_logs("gpu")
    await installed.run("./5.delete-gpu-scheduler.sh")
    assert world.runs("stays")
    node = await installed.cluster.get(f"/api/v1/nodes/{NODE}")
    assert names.NODE_GPUS not in node["metadata"]["annotations"]
    assert names.MPS_GPU not in node["status"]["capacity"]
    left = await installed.run("kubectl get all,serviceaccount,role,rolebinding -n gpu -o name")
    assert set(left.split()) == {"serviceaccount/default"}
    everywhere = "clusterrole,clusterrolebinding,mutatingadmissionpolicy,validatingadmissionpolicy,priorityclass"
    ours = f"app=gpushare,component!={shipped.EXTENDER}"  # that one's rights are of all tests
    assert not (await installed.run(f"kubectl get {everywhere} -l {ours} -o name")).split()
    assert "data-influxdb-0" in await installed.run("kubectl -n gpu get pvc")
    done = [r for r in installed.cluster.audit.since(installed.mark) if r.user.username.startswith(ACCOUNTS)]
    assert [(r.user.username, r.verb, r.kind) for r in done if r.lacks_right] == []
