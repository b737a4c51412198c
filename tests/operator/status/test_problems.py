"""Reasons, in the words of kubelet, of kube-scheduler, of a node's checks and of its GPUs."""

from typing import Any

import msgspec
import pytest

from gpushare.core.annotations import node_gpus, validation
from gpushare.core.annotations.validation import Check
from gpushare.core.facts import names
from gpushare.core.facts.model import Gpu, Pin
from gpushare.core.facts.objects import Condition
from gpushare.operator.managed import Metadata, Node
from gpushare.operator.seeing.models import Pod
from gpushare.operator.status import node_problems, pod_problems
from gpushare.operator.status.facts import Problem

SINCE = "2026-11-17T20:00:00Z"


def pod(*, init: dict[str, Any] | None = None, phase: str = "Pending", **state: Any) -> Pod:
    container = {"name": "node", "image": "gpushare:none", **state}
    status: dict[str, Any] = {"phase": phase, "containerStatuses": [container]}
    if init is not None:
        status["initContainerStatuses"] = [{"name": "wait", **init}]
    metadata = {"name": "gpushare-node-x", "labels": {names.PART_OF: "node-part"}}
    return msgspec.convert({"metadata": metadata, "spec": {"nodeName": "gpu-a"}, "status": status}, Pod)


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"state": {"waiting": {"reason": reason, "message": message}}}


@pytest.mark.parametrize(
    ("shown", "problem"),
    [
        (
            pod(**waiting("ImagePullBackOff", 'Back-off pulling image "x": ErrImagePull: not found')),
            "image gpushare:none cannot be pulled (ImagePullBackOff): not found",
        ),
        (
            pod(
                **waiting("CrashLoopBackOff", "back-off 10s restarting failed container"),
                lastState={"terminated": {"exitCode": 3, "message": "error: no driver\n  why: x"}},
            ),
            "container node ends again and again (CrashLoopBackOff): exit code 3: no driver why: x",
        ),
        (
            pod(
                **waiting("CrashLoopBackOff", "back-off 10s restarting failed container"),
                lastState={"terminated": {"exitCode": 1, "message": '{"msg": "starting"}\n{"msg": "no memory"}\n'}},
            ),
            'container node ends again and again (CrashLoopBackOff): exit code 1: {"msg": "no memory"}',
        ),
        (
            pod(**waiting("CreateContainerError", 'runtime handler "nvidia" not found')),
            'container node: CreateContainerError: runtime handler "nvidia" not found',
        ),
        (pod(**waiting("ContainerCreating")), ""),
        (pod(**waiting("PodInitializing"), init=waiting("ErrImagePull", "denied")), None),
        (pod(init={"state": {}}, **waiting("PodInitializing")), ""),
    ],
)
def test_a_pod_says_why_it_is_not_ready(shown: Pod, problem: str | None) -> None:
    found = pod_problems.facts(shown)
    assert (found.component, found.node, found.ready) == ("node-part", "gpu-a", False)
    if problem is None:
        assert "cannot be pulled (ErrImagePull): denied" in found.problem
    else:
        assert found.problem == problem


def test_a_pod_that_cannot_be_scheduled_says_so() -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes: no room"}
    shown = msgspec.convert({"status": {"phase": "Pending", "conditions": [condition]}, "metadata": {"name": "x"}}, Pod)
    assert pod_problems.facts(shown).problem == "cannot be scheduled: 0/3 nodes: no room"


def test_a_pod_that_kubelet_refused_says_so() -> None:
    shown = msgspec.convert({"status": {"phase": "Failed", "reason": "Evicted", "message": "disk is full"}}, Pod)
    assert pod_problems.facts(shown).problem == "Evicted: disk is full"


def test_a_ready_pod_has_no_problem_whatever_it_had_before() -> None:
    shown = pod(**waiting("CrashLoopBackOff"))
    shown.status.conditions = [Condition(type="Ready", status="True")]
    found = pod_problems.facts(shown)
    assert (found.ready, found.problem) == (True, "")


def node(checks: dict[str, Check] | None = None, gpus: list[Gpu] | None = None, **labels: str) -> Node:
    annotations = {}
    if checks is not None:
        annotations[names.VALIDATION] = validation.write(checks)
    if gpus is not None:
        annotations[names.NODE_GPUS] = node_gpus.write("MiB", Pin.DIRECT, gpus)
    known = {names.PCI_LABELS[0]: "true", node_problems.DEPLOY_VALIDATOR: "true", **labels}
    return Node(metadata=Metadata(name="gpu-a", labels=known, annotations=annotations))


def test_failed_checks_are_problems_and_what_waits_for_them_is_not() -> None:
    checks = {
        "driver": Check("failed", SINCE, "libnvidia-ml.so.1 is not there", "install the driver"),
        "toolkit": Check("waiting", SINCE, "driver"),
    }
    found = node_problems.facts(node(checks))
    more = f"since {SINCE}; try: install the driver"
    assert found.problems == (Problem("driver", "driver: libnvidia-ml.so.1 is not there", more),)
    assert (found.gpus, found.served, found.checked) == (True, True, True)


def test_a_check_that_waits_alone_says_since_when() -> None:
    found = node_problems.facts(
        node({"driver": Check("passed", SINCE), "plugin": Check("waiting", SINCE, "no answer")})
    )
    assert found.problems == (Problem("plugin", f"plugin check is waiting since {SINCE}: no answer"),)


def test_unhealthy_gpus_are_problems_unless_a_check_has_named_them() -> None:
    gpus = [Gpu(0, "GPU-0", 100, True), Gpu(1, "GPU-1", 100, False, "XID 79")]
    named = Problem("", "GPU 1 GPU-1 is unhealthy: XID 79")
    assert node_problems.facts(node({"plugin": Check("passed", SINCE)}, gpus)).problems == (named,)
    failed = {"plugin": Check("failed", SINCE, "plugin: GPU 1 GPU-1 unhealthy")}
    (problem,) = node_problems.facts(node(failed, gpus)).problems
    assert problem == Problem("plugin", "plugin: GPU 1 GPU-1 unhealthy", f"since {SINCE}")


def test_a_node_without_gpus_has_no_problems() -> None:
    labels = {names.PCI_LABELS[0]: "false"}
    found = node_problems.facts(node({"driver": Check("failed", SINCE)}, None, **labels))
    assert (found.gpus, found.problems) == (False, ())


def test_a_node_that_a_person_opted_out_is_not_served() -> None:
    assert not node_problems.facts(node({}, None, **{node_problems.DEPLOY_VALIDATOR: "false"})).served
