"""What the webhook answers to reviews of every kind, the malformed ones too."""

import base64
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from gpushare.core.admission import guard, unasked
from gpushare.core.facts import names, objects
from gpushare.webhook import classes, reviews
from gpushare.webhook.classes import Classes
from gpushare.webhook.nodes import Nodes
from gpushare.webhook.reviews import BadReview, On
from tests.contracts.api import admission_table
from tests.support import builders

TENANT, EXTENDER = "tenant", guard.BY_DEFAULT.all[0]
Object = dict[str, Any]


def review(asked: Object, **more: Any) -> bytes:
    return msgspec.json.encode({"request": {"uid": "u", "resource": {"resource": "pods"}, "object": asked, **more}})


def response(body: bytes) -> Object:
    answer = msgspec.json.decode(body)
    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    found: Object = answer["response"]
    return found


CLASSES = {
    name: objects.PriorityClass(objects.Metadata(name, labels=dict([classes.OURS])), value, "Never")
    for name, value in (("gpu-low", -40), ("gpu-high", 50), ("gpu-immediate", 1450))
}
PATHS: dict[str, Callable[[bytes], bytes]] = {
    "pin": reviews.pin,
    "pin_nvidia": reviews.pin_nvidia,
    "void": reviews.void,
    "guarded": reviews.guarded,
    "validated": lambda body: reviews.validated(body, On(), None),
    "prioritized": lambda body: reviews.prioritized(body, CLASSES),
    "assigned": lambda body: reviews.assigned(body, "gpu-scheduler"),
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b"7", b"{}", b'{"request": null}', b'{"request": {}}', b'{"request": {"uid": 5}}',
        b'{"request": {"uid": "u", "object": 7}}', b'{"request": {"uid": "u", "object": [{}]}}', b"\xff\xfe",
        b"[" * 100_000, b'{"request": {"uid": "u", "object": ' + b'{"a":' * 50_000,
    ],
    ids=range(14),
)  # fmt: skip
def test_what_is_no_review_is_a_sentence(path: str, body: bytes) -> None:
    if path == "guarded" and body == b'{"request": {"uid": "u", "object": 7}}':
        body = b'{"request": {"uid": "u", "object": {"metadata": 7}}}'
    with pytest.raises(BadReview, match="AdmissionReview"):
        PATHS[path](body)


@pytest.mark.parametrize(
    "spec",
    [
        None, 7, [], {}, {"containers": None}, {"containers": {}}, {"containers": [None, 7, "x"]},
        {"containers": [{"resources": []}]}, {"containers": [{"resources": {"limits": {names.GPU_MEM: None}}}]},
        {"containers": [{"env": "x", "resources": {"limits": {names.GPU_MEM: {"a": 1}}}}]},
        {"containers": [{"env": [None], "resources": {"limits": {names.GPU_MEM: "garbage"}}}]},
        {"containers": [{"env": [{"name": names.VISIBLE_DEVICES, "valueFrom": {"fieldRef": 7}}]}], "nodeName": 5},
    ],
    ids=range(12),
)  # fmt: skip
def test_pods_of_any_shape_are_answered(spec: object) -> None:
    for path in (reviews.pin, reviews.pin_nvidia, reviews.void, PATHS["prioritized"], PATHS["assigned"]):
        assert response(path(review({"spec": spec})))["allowed"] is True


def test_a_pod_that_asks_nothing_is_not_changed() -> None:
    plain = admission_table.pod({"asks": {"main": {}}}, "p")
    assert response(reviews.pin(review(plain))) == {"uid": "u", "allowed": True}


@pytest.mark.parametrize("key", [*guard.OF_PODS, f"{names.VISIBLE_PREFIX}0", f"{names.MPS_LIMIT_PREFIX}init-3"])
def test_the_guard_sees_what_is_set_changed_and_removed_and_lets_gpushare_write(key: str) -> None:
    def asked(before: Object, after: Object, user: str) -> Object:
        old = {"metadata": {"annotations": before}}
        return response(
            reviews.guarded(review({"metadata": {"annotations": after}}, oldObject=old, userInfo={"username": user}))
        )

    for before, after in (({}, {key: "x"}), ({key: "x"}, {key: "y"}), ({key: "x"}, {})):
        refused = asked(before, after, TENANT)
        assert refused["allowed"] is False
        assert refused["status"] == {"code": 403, "reason": "Forbidden", "message": guard.POD.format(keys=key)}
        assert asked(before, after, EXTENDER)["allowed"] is True
        assert asked(before, after, "system:serviceaccount:gpu:scheduler")["allowed"] is True
        assert asked(before, after, "system:serviceaccount:gpu:default")["allowed"] is False
    assert asked({key: "x"}, {key: "x", "mine": "y"}, TENANT)["allowed"] is True
    assert (
        asked({}, {names.UUID: "GPU-a", names.MPS_THREADS: "50"}, TENANT)["allowed"] is True
    )  # gpushare reads neither back


def test_more_annotations_than_can_be_looked_through_are_refused() -> None:
    many = {"metadata": {"annotations": {f"k{i}": "v" for i in range(1001)}}}
    refused = response(reviews.guarded(review(many, userInfo={"username": TENANT})))
    assert refused["status"]["message"] == guard.TOO_MANY


def test_what_a_node_has_is_written_by_gpushare_alone() -> None:
    changed = {"metadata": {"annotations": {names.NODE_GPUS: "{}", "other": "x"}}}
    resource = {"resource": "nodes"}
    for user, allowed in ((TENANT, False), ("system:node:gpu-a", False), (guard.BY_DEFAULT.all[1], True)):
        said = response(reviews.guarded(review(changed, resource=resource, userInfo={"username": user})))
        assert said["allowed"] is allowed
    other = {"metadata": {"annotations": {"other": "x"}}}
    assert response(reviews.guarded(review(other, resource=resource, userInfo={"username": TENANT})))["allowed"]
    removed = review({"metadata": {}}, resource=resource, oldObject=changed, userInfo={"username": "admin"})
    assert response(reviews.guarded(removed))["allowed"]  # when a node leaves gpushare


def test_only_gpushare_writes_gpunodes() -> None:
    for user, allowed in ((TENANT, False), ("system:node:gpu-a", False), (guard.BY_DEFAULT.all[1], True)):
        asked = review({"status": {}}, resource={"resource": "gpunodes"}, userInfo={"username": user})
        said = response(reviews.guarded(asked))
        assert said["allowed"] is allowed
        assert allowed or said["status"]["message"] == guard.GPU_NODE


def test_new_ephemeral_containers_see_no_gpu_and_old_ones_are_no_hindrance() -> None:
    old = {"spec": {"containers": [{}], "ephemeralContainers": [{"name": "old"}]}}
    new = {"spec": {"containers": [{}], "ephemeralContainers": [{"name": "old"}, {"name": "new"}]}}
    said = response(reviews.void(review(new, oldObject=old, subResource="ephemeralcontainers")))
    (operation,) = msgspec.json.decode(base64.b64decode(said["patch"]))
    assert operation == {"op": "add", "path": "/spec/ephemeralContainers/1/env", "value": [dict(unasked.VOID)]}


@pytest.mark.parametrize("name", [None, [], {}, 7])
def test_an_ephemeral_container_with_any_name_sees_no_gpu(name: object) -> None:
    old, new = ({"spec": {"ephemeralContainers": found}} for found in ([], [{"name": name}]))
    assert "patch" in response(reviews.void(review(new, oldObject=old, subResource="ephemeralcontainers")))


def test_very_many_containers_are_no_way_around_void() -> None:
    many: Object = {"spec": {"containers": [{} for _ in range(501)]}}
    assert response(reviews.void(review(many)))["status"]["message"] == unasked.TOO_MANY


def nodes() -> Nodes:
    found = Nodes()
    found.upsert(builders.node(8000, 8000, pin="plugin"))
    return found


BYTES = {"asks": {"main": {"mem": "4Gi"}}}
LARGE = {"asks": {"main": {"mem": 9000}}}
FITS = {"asks": {"main": {"mem": 8000}}}


@pytest.mark.parametrize(
    ("row", "on", "allowed", "says"),
    [
        (FITS, On(), True, ""),
        (BYTES, On(), False, "aliyun.com/gpu-mem counts MiB, not bytes"),
        (BYTES, On(invalid="warn"), True, "aliyun.com/gpu-mem counts MiB, not bytes"),
        (LARGE, On(), True, "no GPU is as large as 9000 MiB"),
        (LARGE, On(unplaceable="deny"), False, "no GPU is as large as 9000 MiB"),
        (LARGE, On(unplaceable="off"), True, ""),
        ({"asks": {"main": {"count": 3}}}, On(), True, "node(s) with fewer than 3 GPUs"),
        ({"asks": {"main": {"mem": 8}}, "annotations": {names.MEMORY_UNIT: "GiB"}}, On(), True, "unit is MiB"),
        ({"asks": {"main": {}}}, On(), True, ""),
    ],
)
def test_what_can_never_run_is_refused_or_said(row: Object, on: On, allowed: bool, says: str) -> None:
    said = response(reviews.validated(review(admission_table.pod(row, "p")), on, nodes().ledger))
    assert said["allowed"] is allowed
    words = said["status"]["message"] if not allowed else " ".join(said.get("warnings", ()))
    assert says in words
    assert bool(words) is bool(says)


@pytest.mark.parametrize("nested", [False, True])
def test_a_template_that_makes_such_pods_is_never_refused_only_said(nested: bool) -> None:
    template = {"spec": {"template": {"spec": admission_table.pod(BYTES, "p")["spec"]}}}
    workload = {"spec": {"jobTemplate": template}} if nested else template
    resource = {"resource": "cronjobs" if nested else "deployments"}
    said = response(reviews.validated(review(workload, resource=resource), On(), None))
    assert said["allowed"] is True
    assert said["warnings"][0].startswith("gpushare: aliyun.com/gpu-mem counts MiB, not bytes: container main asks 4Gi")


def test_a_node_that_goes_is_forgotten() -> None:
    found = nodes()
    found.relisted(set())
    said = response(reviews.validated(review(admission_table.pod(FITS, "p")), On(), found.ledger))
    assert "node(s) without a shared GPU" in said["warnings"][0]


def prioritized(pod: Object, **classes: objects.PriorityClass) -> Object:
    """What is set in the spec of a pod."""
    said = response(reviews.prioritized(review(pod), classes))
    assert said["allowed"] is True
    operations = msgspec.json.decode(base64.b64decode(said.get("patch", "W10=")))
    assert {operation["op"] for operation in operations} <= {"add"}
    return {operation["path"].removeprefix("/spec/"): operation["value"] for operation in operations}


def of_gpu_scheduler(written: object, **spec: Any) -> Object:
    return {"metadata": {"annotations": {names.PRIORITY: written}}, "spec": {"schedulerName": "gpu-scheduler", **spec}}


@pytest.mark.parametrize(
    ("written", "name", "value"),
    [
        ("L", "gpu-low", -40), ("low", "gpu-low", -40), ("LOW", "gpu-low", -40), ("h", "gpu-high", 50),
        ("High", "gpu-high", 50), ("I", "gpu-immediate", 1450), ("immediately", "gpu-immediate", 1450),
        ("Immediatly", "gpu-immediate", 1450),
    ],
)  # fmt: skip
def test_ketis_priority_is_a_class_with_its_number_and_policy(written: str, name: str, value: int) -> None:
    pod = of_gpu_scheduler(written, priority=0, preemptionPolicy="PreemptLowerPriority", priorityClassName="")
    assert prioritized(pod, **CLASSES) == {"priorityClassName": name, "priority": value, "preemptionPolicy": "Never"}


@pytest.mark.parametrize("written", ["M", "", "HIGHEST", " H", "50", "ı", "ｈ", 7, None, ["H"]])
def test_every_other_word_is_the_middle_and_nothing_is_set(written: object) -> None:
    assert prioritized(of_gpu_scheduler(written), **CLASSES) == {}


def test_only_pods_of_gpu_scheduler_without_a_class_of_their_own_get_one() -> None:
    assert prioritized(of_gpu_scheduler("H", schedulerName="default-scheduler"), **CLASSES) == {}
    assert prioritized(of_gpu_scheduler("H", priorityClassName="mine"), **CLASSES) == {}
    assert prioritized({"spec": {"schedulerName": "gpu-scheduler"}}, **CLASSES) == {}


def test_a_class_that_the_cluster_lacks_is_not_given() -> None:
    assert prioritized(of_gpu_scheduler("H"), **{"gpu-low": CLASSES["gpu-low"]}) == {}
    known = Classes()
    known.upsert(CLASSES["gpu-high"])
    assert prioritized(of_gpu_scheduler("H"), **known.found) != {}
    known.remove(CLASSES["gpu-high"])
    known.upsert(CLASSES["gpu-low"])
    known.relisted({"gpu-high"})
    assert known.found == {}


def test_a_class_of_that_name_which_is_somebody_elses_is_not_given() -> None:
    known = Classes()
    known.upsert(objects.PriorityClass(objects.Metadata("gpu-high"), 1_000_000))
    assert known.found == {}, "it would evict others, and the policy does not give it either"
    known.upsert(CLASSES["gpu-high"])
    known.upsert(objects.PriorityClass(objects.Metadata("gpu-high", labels={"component": "mine"}), 1_000_000))
    assert known.found == {}
