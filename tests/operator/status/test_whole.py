"""The status of a policy says which component is wrong, on which node, and why."""

from typing import Any

import msgspec

from gpushare.operator.desired.component import Component
from gpushare.operator.seeing.keys import Key
from gpushare.operator.seeing.models import Live, Meta, Policy
from gpushare.operator.status import whole
from gpushare.operator.status.components import Line, Scene
from gpushare.operator.status.facts import NodeFacts, PodFacts, Problem

Object = dict[str, Any]

NOW, LATER = "2026-11-17T20:00:00Z", "2026-11-17T21:00:00Z"
NS = "gpu-operator"


def daemon_set(name: str = "gpushare-node") -> Object:
    return {"kind": "DaemonSet", "metadata": {"name": name, "namespace": NS}}


def running(
    desired: int = 1, ready: int | None = None, *, updated: int | None = None, seen: int = 1, strategy: str = ""
) -> Live:
    ready = desired if ready is None else ready
    return Live(
        metadata=Meta(name="gpushare-node", generation=1),
        spec={"updateStrategy": {"type": strategy}},
        status={
            "desiredNumberScheduled": desired, "numberReady": ready, "numberAvailable": ready,
            "updatedNumberScheduled": desired if updated is None else updated, "observedGeneration": seen,
        },
    )  # fmt: skip


VALIDATOR = Component("validator")
NODE_PART = Component("node-part", (daemon_set(),))
NODE = NodeFacts("gpu-a", gpus=True, served=True, checked=True)
KEY = Key("DaemonSet", NS, "gpushare-node")


def told(
    *components: Component,
    nodes: tuple[NodeFacts, ...] = (NODE,),
    pods: tuple[PodFacts, ...] = (),
    live: Live | None = None,
    failed: tuple[Line, ...] = (),
    policy: Policy | None = None,
    now: str = NOW,
) -> Object:
    scene = Scene(components or (VALIDATOR, NODE_PART), {KEY: live or running()}, nodes, pods, failed)
    return whole.reconciled(policy or Policy(Meta(generation=3)), NS, scene, now)


def message(status: Object) -> str:
    text: str = status["conditions"][0]["message"]
    assert all(one["message"] == text for one in status["conditions"])
    return text


def reasons(status: Object) -> dict[str, tuple[str, str]]:
    return {one["type"]: (one["status"], one["reason"]) for one in status["conditions"]}


def component(status: Object, name: str) -> Object:
    return next(one for one in status["components"] if one["name"] == name)


def test_all_ready() -> None:
    status = told()
    assert status["state"] == "ready"
    assert status["observedGeneration"] == 3
    assert status["namespace"] == NS
    assert reasons(status) == {"Ready": ("True", "Reconciled"), "Error": ("False", "Ready")}
    assert status["nodes"] == {"gpu": 1, "ready": 1}
    assert component(status, "node-part") == {"name": "node-part", "state": "ready", "desired": 1, "ready": 1}
    assert component(status, "validator") == {"name": "validator", "state": "ready"}


def test_no_gpu_nodes_is_ready_and_said() -> None:
    status = told(nodes=(NodeFacts("cpu", gpus=False, served=False, checked=False),), live=running(0))
    assert status["state"] == "ready"
    assert reasons(status)["Ready"] == ("True", "NoGPUNodes")
    assert "no node has a GPU" in message(status)


def test_a_missing_driver_that_is_not_ours_is_missed_by_the_node_part() -> None:
    node = NODE._replace(name="gpu-b", problems=(Problem("driver", "driver missing: libnvidia-ml.so.1 not found"),))
    status = told(Component("driver", enabled=False), VALIDATOR, NODE_PART, nodes=(NODE, node))
    assert status["state"] == "notReady"
    assert message(status) == "node-part: gpu-b: driver missing: libnvidia-ml.so.1 not found"
    assert reasons(status) == {"Ready": ("False", "Error"), "Error": ("True", "OperandNotReady")}
    assert status["nodes"] == {"gpu": 2, "ready": 1}
    assert component(status, "node-part")["message"] == "gpu-b: driver missing: libnvidia-ml.so.1 not found"
    assert component(status, "driver")["state"] == "disabled"


def test_a_component_says_since_when_and_what_to_do_and_the_condition_stays_short() -> None:
    node = NODE._replace(problems=(Problem("driver", "driver missing", f"since {NOW}; try: install it"),))
    status = told(VALIDATOR, NODE_PART, nodes=(node,))
    assert component(status, "node-part")["message"] == f"gpu-a: driver missing; since {NOW}; try: install it"
    assert message(status) == "node-part: gpu-a: driver missing"


def test_a_driver_of_ours_is_named_itself() -> None:
    node = NODE._replace(problems=(Problem("driver", "driver missing"),))
    assert message(told(Component("driver"), VALIDATOR, NODE_PART, nodes=(node,))) == "driver: gpu-a: driver missing"


def test_old_results_of_checks_do_not_count_when_nobody_checks_any_more() -> None:
    node = NODE._replace(checked=False, problems=(Problem("driver", "driver missing"),))
    assert told(Component("validator", enabled=False), NODE_PART, nodes=(node,))["state"] == "ready"


def test_a_node_without_results_is_not_ready() -> None:
    status = told(nodes=(NODE._replace(checked=False),))
    assert message(status) == "validator: gpu-a: its checks have no result yet"


def test_a_node_that_a_person_opted_out_is_not_missed() -> None:
    assert told(nodes=(NODE._replace(checked=False, served=False),))["state"] == "ready"


def test_an_unhealthy_gpu_is_named() -> None:
    node = NODE._replace(problems=(Problem("", "GPU 1 GPU-77 is unhealthy: XID 79"),))
    status = told(Component("validator", enabled=False), NODE_PART, nodes=(node,))
    assert message(status) == "node-part: gpu-a: GPU 1 GPU-77 is unhealthy: XID 79"


def test_a_pod_that_cannot_start_is_named_with_its_reason_and_counts_are_left_out() -> None:
    pod = PodFacts("gpushare-node-x", "node-part", "gpu-a", ready=False, problem="image x cannot be pulled")
    status = told(pods=(pod,), live=running(1, 0))
    assert message(status) == "node-part: gpu-a: image x cannot be pulled"
    assert component(status, "node-part")["ready"] == 0


def test_pods_of_a_component_that_is_off_and_pods_that_end_do_not_count() -> None:
    ending = PodFacts("a", "node-part", "gpu-a", ready=False, problem="CrashLoopBackOff", ends=NOW)
    assert told(pods=(ending, ending._replace(component="mps", ends="")))["state"] == "ready"


def test_counts_are_said_where_nothing_says_more() -> None:
    assert message(told(live=running(3, 1))) == "node-part: gpushare-node: 1 of 3 pods are ready"
    assert message(told(live=running(3, 3, updated=2))) == "node-part: gpushare-node: 2 of 3 pods are updated"
    assert "delete them (update strategy OnDelete)" in message(told(live=running(3, updated=2, strategy="OnDelete")))
    assert "not seen by its controller" in message(told(live=running(seen=0)))


def test_an_object_that_is_not_there_is_named() -> None:
    status = told(VALIDATOR, Component("node-part", (daemon_set("gpushare-nvidia"),)))
    assert message(status) == "node-part: DaemonSet gpushare-nvidia is not there yet"


def test_a_deployment_counts_its_replicas() -> None:
    wanted = {"kind": "Deployment", "metadata": {"name": "gpu-scheduler", "namespace": NS}}
    status = {"readyReplicas": 1, "availableReplicas": 1, "updatedReplicas": 2, "replicas": 2, "observedGeneration": 1}
    live = Live(Meta(name="gpu-scheduler", generation=1), spec={"replicas": 2}, status=status)
    scene = Scene((Component("scheduler", (wanted,)),), {Key("Deployment", NS, "gpu-scheduler"): live}, (), ())
    told = whole.reconciled(Policy(), NS, scene, NOW)
    assert message(told) == "scheduler: gpu-scheduler: 1 of 2 pods are ready"
    done = msgspec.structs.replace(live, status={**status, "availableReplicas": 2, "readyReplicas": 2})
    scene = scene._replace(owned={Key("Deployment", NS, "gpu-scheduler"): done})
    assert whole.reconciled(Policy(), NS, scene, NOW)["state"] == "ready"


def test_what_cannot_be_served_is_said_and_does_not_make_the_rest_unready() -> None:
    status = told(VALIDATOR, NODE_PART, Component("vgpu-manager", unserved="gpushare has no vGPUs"))
    assert status["state"] == "ready"
    unserved = {"name": "vgpu-manager", "state": "unserved", "message": "gpushare has no vGPUs"}
    assert component(status, "vgpu-manager") == unserved
    assert message(status).endswith("not served: vgpu-manager: gpushare has no vGPUs")


def test_a_component_that_is_needed_and_cannot_be_served_makes_the_policy_unready() -> None:
    status = told(VALIDATOR, Component("node-part", unserved="devicePlugin: version is missing"))
    assert status["state"] == "notReady"
    assert message(status) == "node-part: devicePlugin: version is missing"
    assert component(status, "node-part")["state"] == "unserved"


def test_what_could_not_be_written_is_a_failure() -> None:
    status = told(failed=(Line("node-part", "", "DaemonSet x cannot be applied: not allowed: patch daemonsets"),))
    assert reasons(status)["Error"] == ("True", "ReconcileFailed")
    assert message(status) == "node-part: DaemonSet x cannot be applied: not allowed: patch daemonsets"


def test_of_many_problems_the_first_ten_are_listed() -> None:
    nodes = tuple(NODE._replace(name=f"gpu-{number:02}", checked=False) for number in range(25))
    status = told(nodes=nodes)
    assert message(status).count("its checks have no result yet") == 10
    assert message(status).endswith("; and 15 more")
    assert message(status).startswith("validator: gpu-00: ")
    assert status["nodes"] == {"gpu": 25, "ready": 0}


def test_a_condition_keeps_its_time_until_it_changes() -> None:
    policy = Policy(Meta(generation=3), status=told())
    again = told(policy=policy, now=LATER)
    assert again == told()
    broken = told(policy=policy, now=LATER, live=running(1, 0))
    assert {one["lastTransitionTime"] for one in broken["conditions"]} == {LATER}


def test_an_ignored_policy_says_which_one_is_active() -> None:
    status = whole.ignored(Policy(Meta(name="second")), NS, Policy(Meta(name="first")), NOW)
    assert status["state"] == "ignored"
    assert 'ClusterPolicy "first" is active' in message(status)
    assert reasons(status)["Ready"] == ("False", "Ignored")


def test_after_a_failure_components_stay_as_they_were_seen() -> None:
    before = told()
    status = whole.failed(Policy(status=before), NS, ["not allowed: list nodes"], NOW)
    assert status["components"] == before["components"]
    assert reasons(status)["Error"] == ("True", "ReconcileFailed")


def test_a_node_on_which_the_node_part_has_no_pod_is_named_although_all_that_were_made_are_ready() -> None:
    sells = NODE._replace(part="gpushare-node")
    of_another = PodFacts("gpushare-nvidia-x2z", "node-part", "gpu-a", ready=True)
    ending = PodFacts("gpushare-node-7hq", "node-part", "gpu-a", ready=True, ends=LATER)
    status = told(nodes=(sells,), pods=(of_another, ending))
    assert status["state"] == "notReady"
    assert message(status).startswith("node-part: gpu-a: no pod of it is there yet")
    assert told(nodes=(sells,), pods=(ending._replace(ends=""),))["state"] == "ready"
