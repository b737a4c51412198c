"""What any API server does with pods: amounts, immutable specs, bindings, graceful deletion. Only HTTP."""

import asyncio

import pytest

from gpushare.core.facts.names import MPS_GPU
from tests.support import api_client
from tests.support.api_client import GPU_MEM, MERGE, STRATEGIC, Api, pod


async def test_a_new_pod_is_pending_with_the_defaults_of_the_server(api: Api) -> None:
    body = pod() | {"status": {"phase": "Running"}}
    del body["spec"]["schedulerName"]
    created = await api.create(api.pods, body)
    spec = created["spec"]
    assert created["status"]["phase"] == "Pending"
    assert (spec["schedulerName"], spec["restartPolicy"], spec["priority"]) == ("default-scheduler", "Always", 0)
    assert spec["terminationGracePeriodSeconds"] == 30
    assert created["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        ("7000", "7k"),
        (7000, "7k"),
        ("3500", "3500"),
        ("1000", "1k"),
        ("10000000000", "10G"),
        ("4096Mi", "4Gi"),
        ("1025Mi", "1025Mi"),
        ("1000Ki", "1000Ki"),
        ("1024", "1024"),
        ("5k", "5k"),
        ("2000m", "2"),
        ("1e3", "1e3"),
        ("0", "0"),
    ],
)
async def test_amounts_are_rewritten(api: Api, sent: str | int, stored: str) -> None:
    resources = (await api.create(api.pods, pod(amount=sent)))["spec"]["containers"][0]["resources"]
    assert resources["limits"][GPU_MEM] == stored
    assert resources["requests"][GPU_MEM] == stored, "a missing request is the limit"


@pytest.mark.parametrize(
    ("sent", "stored"),
    [("1500m", "1500m"), ("0.5", "500m"), ("1.500", "1.500"), ("0.0001", "1m"), ("2000m", "2"), ("1.5k", "1500")],
)
async def test_cpu_may_be_a_fraction(api: Api, sent: str, stored: str) -> None:
    body = pod()
    body["spec"]["containers"][0]["resources"] = {"requests": {"cpu": sent}, "limits": {"memory": "0.5Gi"}}
    resources = (await api.create(api.pods, body))["spec"]["containers"][0]["resources"]
    assert resources["requests"] == {"cpu": stored, "memory": "512Mi"}


@pytest.mark.parametrize(
    ("resources", "sentence"),
    [
        ({"limits": {GPU_MEM: "1.5"}}, "must be an integer"),
        ({"limits": {GPU_MEM: "-4"}}, "must be greater than or equal to 0"),
        ({"limits": {GPU_MEM: "5"}, "requests": {GPU_MEM: "4"}}, f"must be equal to {GPU_MEM} limit of 5"),
        ({"requests": {GPU_MEM: "4"}}, "Limit must be set for non overcommitable resources"),
        ({"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}, "must be less than or equal to cpu limit of 1"),
        ({"limits": {MPS_GPU: "1.5"}}, "must be an integer"),
        ({"limits": {MPS_GPU: "-1"}}, "must be greater than or equal to 0"),
        ({"limits": {"gpu-mem": "2"}}, "must be a standard resource for containers"),
    ],
)
async def test_wrong_amounts_are_invalid(api: Api, resources: api_client.Object, sentence: str) -> None:
    body = pod()
    body["spec"]["containers"][0]["resources"] = resources
    answer = await api.call("POST", api.pods, body)
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert sentence in answer.message


async def test_an_amount_that_is_no_quantity_is_a_bad_request(api: Api) -> None:
    for resource, amount in ((GPU_MEM, "x4"), (GPU_MEM, "4 Gi"), (GPU_MEM, ""), (GPU_MEM, "4Q"), (MPS_GPU, "abc")):
        body = pod()
        body["spec"]["containers"][0]["resources"] = {"limits": {resource: amount}}
        answer = await api.call("POST", api.pods, body)
        assert (answer.code, answer.reason) == (400, "BadRequest"), amount
        assert answer.message.startswith('Pod in version "v1" cannot be handled as a Pod: ')


async def test_a_pod_needs_containers_with_images(api: Api) -> None:
    empty = await api.call("POST", api.pods, pod(containers=[]))
    assert empty.message == 'Pod "train" is invalid: spec.containers: Required value'
    no_image = await api.call("POST", api.pods, pod(containers=[{"name": "main"}]))
    assert no_image.message == 'Pod "train" is invalid: spec.containers[0].image: Required value'


async def test_names_within_a_pod_are_given_once(api: Api) -> None:
    twice = [{"name": "main", "image": "busybox"}, {"name": "main", "image": "busybox"}]
    answer = await api.call("POST", api.pods, pod(containers=twice))
    assert answer.message == 'Pod "train" is invalid: spec.containers[1].name: Duplicate value: "main"'
    nameless = [{"name": "main", "image": "busybox", "env": [{"value": "1"}]}]
    answer = await api.call("POST", api.pods, pod(containers=nameless))
    assert answer.message == 'Pod "train" is invalid: spec.containers[0].env[0].name: Required value'


async def test_what_is_null_is_not_there(api: Api) -> None:
    container = {"name": "main", "image": "busybox", "env": None, "command": None, "resources": None}
    created = await api.create(api.pods, pod(containers=[container], initContainers=None, nodeSelector=None))
    assert not {"initContainers", "nodeSelector"} & set(created["spec"])
    assert not {"env", "command"} & set(created["spec"]["containers"][0])


async def test_the_spec_of_a_pod_does_not_change_except_for_images(api: Api) -> None:
    await api.create(api.pods, pod(amount=5))
    refused = await api.patch(f"{api.pods}/train", {"spec": {"nodeName": "node-1"}})
    assert (refused.code, refused.reason) == (422, "Invalid")
    sentence = 'Pod "train" is invalid: spec: Forbidden: pod updates may not change fields other than '
    assert refused.message.startswith(sentence)
    change = {"spec": {"containers": [{"name": "main", "image": "busybox:2"}]}}
    allowed = await api.patch(f"{api.pods}/train", change, STRATEGIC)
    assert allowed.body["spec"]["containers"][0]["image"] == "busybox:2"
    assert allowed.body["spec"]["containers"][0]["resources"]["limits"] == {GPU_MEM: "5"}
    assert allowed.body["metadata"]["generation"] == 2


async def test_metadata_of_a_pod_may_change(api: Api) -> None:
    await api.create(api.pods, pod())
    answer = await api.patch(f"{api.pods}/train", {"metadata": {"annotations": {"gpushare.io/woken": "now"}}})
    assert answer.body["metadata"]["annotations"] == {"gpushare.io/woken": "now"}
    assert answer.body["metadata"]["generation"] == 1


async def test_the_status_of_a_pod_has_its_own_endpoint(api: Api) -> None:
    await api.create(api.pods, pod())
    through_main = await api.patch(f"{api.pods}/train", {"status": {"phase": "Running"}})
    assert through_main.body["status"]["phase"] == "Pending"
    patch = {"status": {"phase": "Running"}, "spec": {"nodeName": "x"}, "metadata": {"annotations": {"a": "b"}}}
    through_status = await api.patch(f"{api.pods}/train/status", patch)
    assert through_status.body["status"]["phase"] == "Running"
    assert "nodeName" not in through_status.body["spec"]
    assert through_status.body["metadata"]["annotations"] == {"a": "b"}, "a real server takes metadata here"


async def test_a_strategic_patch_merges_conditions_by_type(api: Api) -> None:
    await api.create(api.pods, pod())
    for type_ in ("Ready", "PodScheduled"):
        condition = {"type": type_, "status": "False", "reason": "Waiting"}
        await api.patch(f"{api.pods}/train/status", {"status": {"conditions": [condition]}}, STRATEGIC)
    again = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    answer = await api.patch(f"{api.pods}/train/status", again, STRATEGIC)
    found = {condition["type"]: condition["status"] for condition in answer.body["status"]["conditions"]}
    assert found == {"Ready": "True", "PodScheduled": "False"}
    replaced = await api.patch(f"{api.pods}/train/status", again, MERGE)
    assert len(replaced.body["status"]["conditions"]) == 1


async def test_a_binding_sets_node_annotations_and_condition_in_one_version(api: Api) -> None:
    body = pod()
    body["metadata"]["annotations"] = {"keep": "1", "change": "1"}
    created = await api.create(api.pods, body)
    version = created["metadata"]["resourceVersion"]
    async with api.watch(api.pods, resourceVersion=version) as watch:
        uid = created["metadata"]["uid"]
        answer = await api.bind("train", "node-1", uid=uid, annotations={"change": "2", "add": "1"})
        assert (answer.code, answer.body["kind"], answer.body["status"]) == (201, "Status", "Success")
        type_, bound = await watch.next()
    assert type_ == "MODIFIED"
    assert bound["spec"]["nodeName"] == "node-1"
    assert bound["metadata"]["annotations"] == {"keep": "1", "change": "2", "add": "1"}
    conditions = {condition["type"]: condition["status"] for condition in bound["status"]["conditions"]}
    assert conditions == {"PodScheduled": "True"}
    assert (await api.get(f"{api.pods}/train")).version == bound["metadata"]["resourceVersion"]


async def test_a_pod_is_bound_only_once(api: Api) -> None:
    await api.create(api.pods, pod())
    answers = await asyncio.gather(*(api.bind("train", f"node-{i}") for i in range(8)))
    assert sorted(answer.code for answer in answers) == [201] + [409] * 7
    node = (await api.get(f"{api.pods}/train")).body["spec"]["nodeName"]
    again = await api.bind("train", "node-9", annotations={"late": "1"})
    sentence = f'Operation cannot be fulfilled on pods/binding "train": pod train is already assigned to node "{node}"'
    assert (again.reason, again.message) == ("Conflict", sentence)
    assert "annotations" not in (await api.get(f"{api.pods}/train")).body["metadata"]


async def test_a_binding_for_another_uid_conflicts(api: Api) -> None:
    created = await api.create(api.pods, pod())
    answer = await api.bind("train", "node-1", uid="another")
    assert (answer.code, answer.reason) == (409, "Conflict")
    uid = created["metadata"]["uid"]
    assert f"Precondition failed: UID in precondition: another, UID in object meta: {uid}" in answer.message
    assert "nodeName" not in (await api.get(f"{api.pods}/train")).body["spec"]


async def test_a_binding_may_demand_a_version(api: Api) -> None:
    await api.create(api.pods, pod())
    answer = await api.bind("train", "node-1", resourceVersion="1")
    assert answer.code == 409
    assert "Precondition failed: ResourceVersion in precondition: 1" in answer.message


async def test_a_binding_needs_a_pod_a_target_and_one_name(api: Api) -> None:
    missing = await api.bind("none", "node-1")
    assert (missing.code, missing.message) == (404, 'pods "none" not found')
    await api.create(api.pods, pod())
    nowhere = await api.bind("train", "")
    assert (nowhere.code, nowhere.message) == (500, "target.name: Required value")
    other = {"metadata": {"name": "other"}, "target": {"name": "node-1"}}
    answer = await api.call("POST", f"{api.pods}/train/binding", other)
    assert (answer.code, answer.message) == (400, "name in URL does not match name in Binding object")


async def test_the_old_path_for_bindings_works_too(api: Api) -> None:
    await api.create(api.pods, pod())
    body = {"metadata": {"name": "train"}, "target": {"name": "node-1"}}
    assert (await api.call("POST", f"/api/v1/namespaces/{api.namespace}/bindings", body)).code == 201
    assert (await api.get(f"{api.pods}/train")).body["spec"]["nodeName"] == "node-1"


async def test_a_pod_behind_a_gate_cannot_be_bound_until_the_gate_is_gone(api: Api) -> None:
    await api.create(api.pods, pod(schedulingGates=[{"name": "example.com/wait"}]))
    answer = await api.bind("train", "node-1")
    assert (answer.code, "pod train has non-empty .spec.schedulingGates" in answer.message) == (409, True)
    assert (await api.patch(f"{api.pods}/train", {"spec": {"schedulingGates": None}})).code == 200
    assert (await api.bind("train", "node-1")).code == 201


async def test_an_unbound_pod_is_deleted_at_once(api: Api) -> None:
    await api.create(api.pods, pod())
    answer = await api.call("DELETE", f"{api.pods}/train")
    assert (answer.code, answer.body["kind"]) == (200, "Pod")
    assert (await api.get(f"{api.pods}/train")).code == 404


async def test_a_bound_pod_stays_until_it_is_deleted_with_no_grace(api: Api) -> None:
    await api.create(api.pods, pod())
    await api.bind("train", f"node-of-{api.namespace}")  # pods of a node that is long known to be missing are deleted
    first = await api.call("DELETE", f"{api.pods}/train")
    assert (first.code, first.body["metadata"]["deletionGracePeriodSeconds"]) == (200, 30)
    assert first.body["metadata"]["deletionTimestamp"]
    assert first.body["metadata"]["generation"] == 2
    again = await api.call("DELETE", f"{api.pods}/train", {"gracePeriodSeconds": 60})
    assert (again.code, again.version) == (200, first.version), "a deletion cannot be put off"
    shorter = await api.call("DELETE", f"{api.pods}/train", gracePeriodSeconds=5)
    assert shorter.body["metadata"]["deletionGracePeriodSeconds"] == 5
    assert (await api.get(f"{api.pods}/train")).code == 200
    assert (await api.call("DELETE", f"{api.pods}/train", {"gracePeriodSeconds": 0})).code == 200
    assert (await api.get(f"{api.pods}/train")).code == 404


async def test_a_pod_being_deleted_cannot_be_bound(api: Api) -> None:
    body = pod()
    body["metadata"]["finalizers"] = ["example.com/wait"]
    await api.create(api.pods, body)
    await api.call("DELETE", f"{api.pods}/train")
    answer = await api.bind("train", "node-1")
    assert answer.code == 409
    assert answer.message == (
        'Operation cannot be fulfilled on pods/binding "train": '
        "pod train is being deleted, cannot be assigned to a host"
    )
    await api.patch(f"{api.pods}/train", {"metadata": {"finalizers": None}})
    assert (await api.get(f"{api.pods}/train")).code == 404


async def test_a_bound_pod_that_has_ended_is_deleted_at_once(api: Api) -> None:
    await api.create(api.pods, pod())
    await api.bind("train", "node-1")
    await api.patch(f"{api.pods}/train/status", {"status": {"phase": "Succeeded"}})
    await api.call("DELETE", f"{api.pods}/train")
    assert (await api.get(f"{api.pods}/train")).code == 404


async def test_many_pods_are_deleted_by_selector(api: Api) -> None:
    for name, team in (("a", "red"), ("b", "red"), ("c", "blue")):
        await api.create(api.pods, pod(name, labels={"team": team}))
    answer = await api.call("DELETE", api.pods, labelSelector="team=red")
    assert (answer.code, sorted(answer.names())) == (200, ["a", "b"])
    assert (await api.get(api.pods)).names() == ["c"]
