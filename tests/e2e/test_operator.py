"""From a bare GPU node to a working cluster in one command, on a real kubelet: chart, operator and all that it makes.

The tests are the life of one installation, from top to bottom, as the guide has it: the node is tainted, the chart is
installed with the guide's values, its commands show what it says, everything is broken once and heals, what people
change by hand is put back, the node sells shares in place of GPUs, the chart is upgraded under running pods, and in the
end nothing of it is left.
"""

import datetime
import json
import re
import time
from collections.abc import Awaitable, Callable, Iterator

import pytest

from gpushare.core.facts import names
from tests.e2e.harness import gpu_host, operator
from tests.e2e.harness.cluster import NODE, ROOT, Failed
from tests.e2e.harness.figures import Figures
from tests.e2e.harness.installation import held
from tests.e2e.harness.kubelet import Node
from tests.e2e.harness.operator import CHART, NAMESPACE, RELEASE, REPAIRED_SECONDS, Operator
from tests.e2e.harness.selling import POD
from tests.e2e.harness.snapshot import Snapshot, taken
from tests.support import wait
from tests.support.objects import Object

pytestmark = pytest.mark.own_cluster

GPUS = [16276, 16276]  # MiB
TAINT = "nvidia.com/gpu=present:NoSchedule"
# As the guide writes them.
GUIDE_VALUES = """
driver:
  enabled: false
migManager:
  enabled: false
vgpuManager:
  enabled: false
vgpuDeviceManager:
  enabled: false
vfioManager:
  enabled: false
daemonsets:
  tolerations:
  - key: nvidia.com/gpu
    operator: Exists
    effect: NoSchedule
"""
SELL_GPUS = {"sharing": {"sell": "gpus"}}
VALUES = "-f guide-values.yaml -f sell.yaml -f machine.yaml"
INSTALL = f"helm install {RELEASE} {CHART} -n {NAMESPACE} --create-namespace {VALUES}"
UPGRADE = f"helm upgrade {RELEASE} {{chart}} -n {NAMESPACE} {VALUES} --wait"
# Quoted: else a shell takes the backslash.
COLUMNS = r"kubectl get nodes '-o=custom-columns=NAME:.metadata.name,GPU:.status.allocatable.nvidia\.com/gpu'"
DEPLOYMENT = ROOT / "examples" / "01-deployment.yaml"
ORDER = ("driver-ready", "toolkit-ready", "plugin-ready", "cuda-ready")
NO_SUCH_IMAGE = {"repository": "docker.io/library", "image": "gpushare", "version": "no-such"}
ITS_IMAGE = dict.fromkeys(NO_SUCH_IMAGE)  # by a merge patch: as if it had not been said
BAD_CONFIG = "version: v1\nsharing: {timeslicing: {}}"
GOOD_CONFIG = "version: v1"


@pytest.fixture(scope="module")
def prepared(node: Node) -> Iterator[tuple[Operator, Snapshot]]:
    yield from held(operator.prepared(node, GPUS))


@pytest.fixture
def installed(prepared: tuple[Operator, Snapshot]) -> Operator:
    return prepared[0]


# It is installed


async def test_one_helm_install_makes_a_bare_gpu_node_work(installed: Operator, figures: Figures) -> None:
    installed.write("guide-values.yaml", GUIDE_VALUES)
    installed.write("sell.yaml", SELL_GPUS)
    installed.write("machine.yaml", installed.machine_values())
    await installed.shell(f"kubectl taint node {NODE} {TAINT}")
    began = time.monotonic()
    await installed.shell(INSTALL)
    await installed.until_ready()
    figures.say("operator", f"from helm install to a policy that is ready: {time.monotonic() - began:.0f} s")
    shown = await installed.shell("kubectl get clusterpolicy -n gpu-operator")
    assert re.match(r"NAME +STATUS +AGE\ncluster-policy +ready +\d+s\n$", shown), shown


async def test_each_part_began_when_what_it_needs_was_there(installed: Operator) -> None:
    files = installed.ready_files()
    assert set(files) == set(ORDER)
    assert sorted(files.values()) == [files[name] for name in ORDER]
    (node_part,) = await installed.pods_of("gpushare-nvidia")
    (init,) = node_part["status"]["initContainerStatuses"]
    ended = _time(init["state"]["terminated"]["finishedAt"])
    assert files["toolkit-ready"] - 1 < ended < files["plugin-ready"] + 1  # the API server's times have no fractions


async def test_the_commands_of_the_guide_show_what_it_says(installed: Operator) -> None:
    pods = await installed.shell("kubectl get pod -n gpu-operator -o wide")
    states = {line.split()[0].rstrip("0123456789abcdef-"): line.split()[1:3] for line in pods.splitlines()[1:]}
    assert {status for _, status in states.values()} == {"Running"}, pods
    assert all(ready in ("1/1", "2/2") for ready, _ in states.values()), pods
    assert await installed.shell(COLUMNS) == f"NAME   GPU\n{NODE}   {len(GPUS)}\n"
    classes = await installed.shell("kubectl get runtimeclass")
    assert classes.splitlines()[1].split()[:2] == ["nvidia", "nvidia"]
    labels = (await installed.node.object())["metadata"]["labels"]
    assert labels["nvidia.com/gpu.present"] == "true"
    assert labels["gpushare"] == "gpus"
    assert labels["nvidia.com/gpu.product"] == "Tesla-T4"
    assert labels["nvidia.com/gpu.count"] == str(len(GPUS))


async def test_the_pod_of_the_guide_runs_on_the_tainted_node_and_sees_one_gpu(installed: Operator) -> None:
    installed.write("pod.yaml", POD)
    await installed.shell("kubectl apply -f pod.yaml")
    await installed.shell("kubectl wait --for=condition=Ready pod/pod-gpu-1 --timeout=60s")
    shown = await installed.shell("kubectl exec pod-gpu-1 -- env")
    told = dict(line.split("=", 1) for line in shown.splitlines())
    assert told[names.VISIBLE_DEVICES] in installed.host.uuids()
    await installed.shell("kubectl delete pod pod-gpu-1")


async def test_helm_test_passes_for_gpus(installed: Operator) -> None:
    assert "Succeeded" in await installed.shell(f"helm test {RELEASE} -n {NAMESPACE}")


# Everything breaks, and heals


async def test_an_image_that_cannot_be_pulled_is_named(installed: Operator, figures: Figures) -> None:
    await installed.patch({"finder": NO_SUCH_IMAGE})
    took = await installed.until_named("finder", NODE, "no-such")
    await installed.patch({"finder": ITS_IMAGE})
    _say(figures, "an image that cannot be pulled", took, await installed.until_ready())


async def test_a_missing_driver_file_is_named(installed: Operator, figures: Figures) -> None:
    with installed.host.without(gpu_host.LIBRARY):
        took = await installed.until_named("node-part", NODE, "driver", "libnvidia-ml.so.1")
        assert "driver-ready" not in installed.ready_files()
    _say(figures, "a missing driver file", took, await installed.until_ready())


async def test_a_missing_container_runtime_is_named(installed: Operator, figures: Figures) -> None:
    with installed.host.without(gpu_host.RUNTIME):
        took = await installed.until_named(NODE, "nvidia-container-runtime")
        assert "toolkit-ready" not in installed.ready_files()
    _say(figures, "a missing container runtime", took, await installed.until_ready())


async def test_a_wrong_config_is_named(installed: Operator, figures: Figures) -> None:
    await _configure(installed, GOOD_CONFIG)
    await installed.patch({"devicePlugin": {"config": {"name": "configs", "default": "mine"}}})
    await installed.until_ready()
    await _configure(installed, BAD_CONFIG)
    await wait.eventually(lambda: BAD_CONFIG in installed.mounted("configs", "mine"), "kubelet brings the config", 30)
    took = await installed.until_named("node-part", NODE, "timeslicing")
    await _configure(installed, GOOD_CONFIG)
    healed = await installed.until_ready()
    await installed.patch({"devicePlugin": {"config": {"name": "", "default": ""}}})
    await installed.until_ready()
    await installed.shell(f"kubectl -n {NAMESPACE} delete -f configs.yaml")
    _say(figures, "a wrong config", took, healed)


async def test_rights_that_were_taken_away_are_named(installed: Operator, figures: Figures) -> None:
    role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/gpushare-operator"
    whole = await installed.cluster.get(role)
    less = [rule for rule in whole["rules"] if "runtimeclasses" not in rule.get("resources", ())]
    assert less != whole["rules"]
    await installed.cluster.call("PUT", role, {**whole, "rules": less})
    try:
        await installed.shell("kubectl delete runtimeclass nvidia")
        took = await installed.until_named("runtime-class", "not allowed: list runtimeclasses")
    finally:
        now = await installed.cluster.get(role)
        await installed.cluster.call("PUT", role, {**now, "rules": whole["rules"]})
    _say(figures, "rights that were taken away", took, await installed.until_ready())


async def test_an_unhealthy_gpu_is_named(installed: Operator, figures: Figures) -> None:
    installed.host.report(79, 1)
    took = await installed.until_named("node-part", NODE, installed.host.uuids()[1], "unhealthy")
    _say(figures, "an unhealthy GPU", took, await installed.until_ready())  # after the minute that it has to be well


# What people change by hand is put back


async def test_what_was_changed_by_hand_is_put_back(installed: Operator, figures: Figures) -> None:
    part = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/gpushare-nvidia"
    deed = {"spec": {"template": {"spec": {"containers": [{"name": "gpushare-nvidia", "image": "other:1"}]}}}}
    edit = f"kubectl -n {NAMESPACE} patch daemonset gpushare-nvidia -p '{json.dumps(deed)}'"

    async def has_its_image() -> bool:
        (container,) = (await installed.cluster.get(part))["spec"]["template"]["spec"]["containers"]
        return bool(container["image"] != "other:1")

    async def has_its_map() -> bool:
        maps = await installed.cluster.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps")
        return "gpu-scheduler" in {one["metadata"]["name"] for one in maps["items"]}

    async def is_labelled() -> bool:
        return bool((await installed.node.object())["metadata"]["labels"].get("nvidia.com/gpu.present") == "true")

    delete = f"kubectl -n {NAMESPACE} delete configmap gpu-scheduler"
    relabel = f"kubectl label --overwrite node {NODE} nvidia.com/gpu.present-"
    for what, command, again in (
        ("a DaemonSet that was edited", edit, has_its_image),
        ("a ConfigMap that was deleted", delete, has_its_map),
        ("a label that was removed", relabel, is_labelled),
    ):
        await installed.shell(command)
        figures.say("operator", f"{what} is back after {await _repaired(again, what):.1f} s")
    await installed.until_ready()


# The node sells shares


async def test_the_deployment_of_the_readme_runs_on_shares_as_it_is_written(installed: Operator) -> None:
    installed.write("sell.yaml", {"sharing": {"sell": "memory"}})
    await installed.shell(f"kubectl taint node {NODE} {TAINT.partition('=')[0]}-")  # it tolerates nothing
    await installed.shell(UPGRADE.format(chart=CHART))
    await installed.until_ready()
    assert (await installed.node.object())["metadata"]["labels"]["gpushare"] == "true"
    await installed.shell(f"kubectl apply -f {DEPLOYMENT}")
    await installed.shell("kubectl rollout status deployment/web --timeout=60s")
    seen = set()
    for pod in await _pods_of_deployment(installed):
        shown = await installed.shell(f"kubectl exec {pod['metadata']['name']} -- env")
        told = dict(line.split("=", 1) for line in shown.splitlines())
        seen.add(told[names.VISIBLE_DEVICES])
    assert len(seen) == 1
    assert seen <= set(installed.host.uuids())


async def test_helm_test_passes_for_shares(installed: Operator) -> None:
    assert "Succeeded" in await installed.shell(f"helm test {RELEASE} -n {NAMESPACE}")


async def test_an_upgrade_leaves_running_pods_alone(installed: Operator) -> None:
    before = await _containers(installed)
    assert len(before) == 3
    await installed.shell(UPGRADE.format(chart=await _previous_chart(installed)))
    await installed.until_ready()
    await installed.shell(UPGRADE.format(chart=CHART))
    await installed.until_ready()
    assert await _containers(installed) == before


async def test_every_component_is_switched_off_and_on_again(installed: Operator) -> None:
    switches = ("finder", "validator", "devicePlugin", "gfd", "dcgmExporter", "scheduler", "admission")
    named = {"devicePlugin": "node-part", "gfd": "discovery", "dcgmExporter": "exporter"}
    await installed.shell(f"kubectl delete --wait -f {DEPLOYMENT}")  # without a node part GPUs are nobody's
    for on in (False, True):
        await installed.patch({name: {"enabled": on} for name in switches})
        await installed.until_ready()
        states = {one["name"]: one["state"] for one in (await installed.status())["components"]}
        wanted = "ready" if on else "disabled"
        assert {name: states[named.get(name, name)] for name in switches} == dict.fromkeys(switches, wanted)
        workloads = await installed.cluster.kubectl("get", "daemonsets,deployments", "-n", NAMESPACE, "-o", "name")
        assert on == ("gpushare-node" in workloads), workloads
        assert on == ("gpu-scheduler" in workloads), workloads


async def test_what_cannot_be_served_is_said(installed: Operator) -> None:
    await installed.patch({"vgpuManager": {"enabled": True}})
    await installed.until_ready()
    found = await installed.component("vgpu-manager")
    assert found["state"] == "unserved"
    assert found["message"]
    await installed.patch({"vgpuManager": {"enabled": False}})
    await installed.until_ready()


# It is removed


async def test_without_the_policy_the_node_is_as_it_was_and_nothing_is_left_after_uninstall(
    installed: Operator, prepared: tuple[Operator, Snapshot], figures: Figures
) -> None:
    before = prepared[1]
    began = time.monotonic()
    await installed.shell("kubectl delete clusterpolicy cluster-policy")
    figures.say("operator", f"a policy with all that it made is gone after {time.monotonic() - began:.0f} s")
    now = await taken(installed.node)
    assert now.node == before.node
    assert now.files == before.files
    await installed.shell(f"helm uninstall {RELEASE} -n {NAMESPACE} --wait")
    await _left(installed, before)


async def test_uninstall_alone_leaves_nothing_either(
    installed: Operator, prepared: tuple[Operator, Snapshot], figures: Figures
) -> None:
    await installed.shell(INSTALL)
    await installed.until_ready()
    began = time.monotonic()
    await installed.shell(f"helm uninstall {RELEASE} -n {NAMESPACE} --wait")
    figures.say("operator", f"helm uninstall took {time.monotonic() - began:.0f} s")
    await _left(installed, prepared[1])


async def _left(installed: Operator, before: Snapshot) -> None:
    """But for the namespace, which helm made and never deletes. Pods of its jobs go last."""

    async def as_before() -> bool:
        return (await taken(installed.node)).without_namespace(NAMESPACE) == before

    try:
        await wait.eventually_asked(as_before, "all is as before", 30)
    except AssertionError:
        now = (await taken(installed.node)).without_namespace(NAMESPACE)
        assert sorted(now.objects - before.objects) == sorted(before.objects - now.objects)
        assert now == before
        raise


# Words of the tests above


def _say(figures: Figures, what: str, named: float, healed: float) -> None:
    figures.say("operator", f"{what}: named after {named:.1f} s, ready again {healed:.1f} s after it was healed")


async def _repaired(again: Callable[[], Awaitable[bool]], what: str) -> float:
    began = time.monotonic()
    await wait.eventually_asked(again, f"{what} is put back", REPAIRED_SECONDS, every=0.05)
    return time.monotonic() - began


async def _configure(installed: Operator, config: str) -> None:
    """Configs of NVIDIA's plugin, in a ConfigMap that a person has made."""
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "configs"}, "data": {"mine": config}}
    installed.write("configs.yaml", made)
    await installed.shell(f"kubectl -n {NAMESPACE} apply -f configs.yaml")


async def _pods_of_deployment(installed: Operator) -> list[Object]:
    found = await installed.cluster.get("/api/v1/namespaces/default/pods?labelSelector=app=web")
    return list(found["items"])


async def _containers(installed: Operator) -> dict[str, str]:
    """Their ids, by pod: one that was restarted has another."""
    pods = await _pods_of_deployment(installed)
    return {pod["metadata"]["name"]: pod["status"]["containerStatuses"][0]["containerID"] for pod in pods}


async def _previous_chart(installed: Operator) -> str:
    """That of the previous commit, if it had one; else this one."""
    place = installed.folder / "previous"
    place.mkdir()
    try:
        await installed.shell(f"cd {ROOT} && git archive HEAD~1 charts/gpushare | tar -x -C {place}")
    except Failed:
        return str(CHART)
    return str(place / "charts" / "gpushare")


def _time(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()
