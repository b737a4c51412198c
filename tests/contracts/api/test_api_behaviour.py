"""What any API server does with objects: create, read, update, patch, delete. Only HTTP; see `support`."""

from tests.support import api_client
from tests.support.api_client import Api, configmap, pod

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


async def test_creating_fills_in_what_only_the_server_knows(api: Api) -> None:
    created = await api.create(api.configmaps, configmap(colour="red"))
    assert (created["kind"], created["apiVersion"]) == ("ConfigMap", "v1")
    assert created["metadata"]["namespace"] == api.namespace
    assert created["metadata"]["uid"]
    assert created["metadata"]["resourceVersion"]
    assert created["metadata"]["creationTimestamp"].endswith("Z")
    read = await api.get(f"{api.configmaps}/settings")
    assert (read.code, read.body["data"], read.version) == (
        200,
        {"colour": "red"},
        created["metadata"]["resourceVersion"],
    )


async def test_a_generated_name_starts_as_asked_and_is_new_each_time(api: Api) -> None:
    made = [await api.create(api.configmaps, {"metadata": {"generateName": "part-"}}) for _ in range(2)]
    names = {obj["metadata"]["name"] for obj in made}
    assert len(names) == 2
    assert all(name.startswith("part-") and len(name) == len("part-") + 5 for name in names)


async def test_a_name_can_be_taken_only_once(api: Api) -> None:
    await api.create(api.configmaps, configmap())
    answer = await api.call("POST", api.configmaps, configmap())
    assert (answer.code, answer.reason) == (409, "AlreadyExists")
    assert answer.message == 'configmaps "settings" already exists'
    assert answer.body["details"] == {"name": "settings", "kind": "configmaps"}


async def test_a_dry_run_answers_what_would_be_created_and_creates_nothing(api: Api) -> None:
    await api.create(api.configmaps, configmap())
    tried = await api.call(
        "POST", api.configmaps, {"metadata": {"generateName": "part-"}, "data": {"n": "1"}}, dryRun="All"
    )
    assert (tried.code, tried.body["kind"], tried.body["data"]) == (201, "ConfigMap", {"n": "1"})
    assert tried.body["metadata"]["name"].startswith("part-")
    assert tried.body["metadata"]["uid"]
    assert "resourceVersion" not in tried.body["metadata"]
    taken = await api.call("POST", api.configmaps, configmap(), dryRun="All")
    assert (taken.code, taken.reason) == (409, "AlreadyExists")
    assert "settings" in (await api.get(api.configmaps)).names()
    assert tried.body["metadata"]["name"] not in (await api.get(api.configmaps)).names()


async def test_a_dry_run_of_a_pod_fills_in_what_a_pod_gets_and_refuses_what_is_refused(api: Api) -> None:
    tried = await api.call("POST", api.pods, pod("draft"), dryRun="All")
    assert (tried.code, tried.body["spec"]["restartPolicy"]) == (201, "Always")
    assert (await api.get(f"{api.pods}/draft")).code == 404
    bad = await api.call("POST", api.pods, pod("Bad_Name"), dryRun="All")
    assert (bad.code, bad.reason) == (422, "Invalid")
    nowhere = await api.call("POST", f"/api/v1/namespaces/{api_client.unique('missing')}/pods", pod(), dryRun="All")
    assert (nowhere.code, nowhere.reason) == (404, "NotFound")


async def test_nothing_is_created_in_a_namespace_that_does_not_exist(api: Api) -> None:
    missing = api_client.unique("missing")
    answer = await api.call("POST", f"/api/v1/namespaces/{missing}/configmaps", configmap())
    assert (answer.code, answer.reason, answer.message) == (404, "NotFound", f'namespaces "{missing}" not found')


async def test_a_missing_or_bad_name_is_invalid(api: Api) -> None:
    nameless = await api.call("POST", api.pods, pod("") | {"metadata": {}})
    assert (nameless.code, nameless.reason) == (422, "Invalid")
    assert nameless.message == 'Pod "" is invalid: metadata.name: Required value: name or generateName is required'
    bad = await api.call("POST", api.pods, pod("Bad_Name"))
    assert bad.code == 422
    assert 'metadata.name: Invalid value: "Bad_Name": a lowercase RFC 1123 subdomain must consist of' in bad.message
    assert bad.body["details"]["causes"][0]["field"] == "metadata.name"


async def test_a_body_for_another_namespace_is_refused(api: Api) -> None:
    other = configmap() | {"metadata": {"name": "settings", "namespace": "elsewhere"}}
    answer = await api.call("POST", api.configmaps, other)
    sentence = "the namespace of the provided object does not match the namespace sent on the request"
    assert (answer.code, answer.message) == (400, sentence)


async def test_a_new_object_may_not_name_a_resource_version(api: Api) -> None:
    body = configmap() | {"metadata": {"name": "settings", "resourceVersion": "5"}}
    answer = await api.call("POST", api.configmaps, body)
    assert (answer.code, answer.message) == (500, "resourceVersion should not be set on objects to be created")


async def test_labels_and_annotations_are_strings(api: Api) -> None:
    for field in ("labels", "annotations"):
        answer = await api.call("POST", api.pods, pod() | {"metadata": {"name": "train", field: {"count": 1}}})
        assert (answer.code, answer.reason) == (400, "BadRequest")
        assert f"metadata.{field} of type string" in answer.message
    answer = await api.call("POST", api.pods, pod(labels={"colour": "not a label!"}))
    assert answer.code == 422


async def test_an_owner_is_named_in_full(api: Api) -> None:
    body = configmap() | {"metadata": {"name": "settings", "ownerReferences": [{"kind": "Pod", "apiVersion": "v1"}]}}
    answer = await api.call("POST", api.configmaps, body)
    assert (answer.code, answer.reason) == (422, "Invalid")
    for part in ("name", "uid"):
        assert f'metadata.ownerReferences.{part}: Invalid value: "": must not be empty' in answer.message


async def test_what_is_not_json_is_a_bad_request(api: Api) -> None:
    for body in (b"{", b"[]", b'"x"'):
        answer = await api.call("POST", api.pods, body)
        assert (answer.code, answer.reason) == (400, "BadRequest")


async def test_unknown_paths_and_methods_get_a_status(api: Api) -> None:
    for method, path, code, reason in (
        ("GET", f"{api.pods}/none", 404, "NotFound"),
        ("GET", "/api/v1/foos", 404, "NotFound"),
        ("GET", f"{api.pods}/none/foo", 404, "NotFound"),
        ("PUT", api.pods, 405, "MethodNotAllowed"),
        ("POST", f"{api.pods}/none", 405, "MethodNotAllowed"),
        ("POST", "/api/v1/pods", 405, "MethodNotAllowed"),
    ):
        answer = await api.call(method, path, None if method == "GET" else {})
        assert (answer.code, answer.reason, answer.body["kind"]) == (code, reason, "Status"), (method, path)
        assert answer.body["code"] == code
        assert answer.body["status"] == "Failure"


async def test_an_update_over_an_old_version_conflicts(api: Api) -> None:
    old = await api.create(api.configmaps, configmap(n="1"))
    first = await api.call("PUT", f"{api.configmaps}/settings", old | {"data": {"n": "2"}})
    assert first.code == 200
    assert first.version != old["metadata"]["resourceVersion"]
    second = await api.call("PUT", f"{api.configmaps}/settings", old | {"data": {"n": "3"}})
    assert (second.code, second.reason) == (409, "Conflict")
    assert second.message == f'Operation cannot be fulfilled on configmaps "settings": {MODIFIED}'
    assert second.body["details"] == {"name": "settings", "kind": "configmaps"}


async def test_an_update_without_a_version_overwrites(api: Api) -> None:
    await api.create(api.configmaps, configmap(n="1"))
    answer = await api.call("PUT", f"{api.configmaps}/settings", configmap(n="2"))
    assert (answer.code, answer.body["data"]) == (200, {"n": "2"})


async def test_an_update_of_another_uid_conflicts(api: Api) -> None:
    old = await api.create(api.configmaps, configmap())
    other = configmap() | {"metadata": {"name": "settings", "uid": "another"}}
    answer = await api.call("PUT", f"{api.configmaps}/settings", other)
    assert (answer.code, answer.reason) == (409, "Conflict")
    uid = old["metadata"]["uid"]
    assert f"Precondition failed: UID in precondition: another, UID in object meta: {uid}" in answer.message


async def test_updating_or_patching_what_is_not_there_is_not_found(api: Api) -> None:
    assert (await api.call("PUT", f"{api.configmaps}/settings", configmap())).code == 404
    assert (await api.patch(f"{api.configmaps}/settings", {"data": {}})).code == 404
    assert (await api.call("DELETE", f"{api.configmaps}/settings")).code == 404


async def test_a_write_that_changes_nothing_makes_no_new_version(api: Api) -> None:
    created = await api.create(api.configmaps, configmap(n="1"))
    version = created["metadata"]["resourceVersion"]
    assert (await api.patch(f"{api.configmaps}/settings", {"data": {"n": "1"}})).version == version
    assert (await api.call("PUT", f"{api.configmaps}/settings", configmap(n="1"))).version == version


async def test_a_merge_patch_adds_changes_and_removes(api: Api) -> None:
    await api.create(api.configmaps, configmap(keep="1", change="1", drop="1"))
    patch = {"data": {"change": "2", "drop": None, "add": "1"}, "metadata": {"annotations": {"a": "b"}}}
    answer = await api.patch(f"{api.configmaps}/settings", patch)
    assert answer.body["data"] == {"keep": "1", "change": "2", "add": "1"}
    assert answer.body["metadata"]["annotations"] == {"a": "b"}


async def test_a_patch_may_demand_a_version(api: Api) -> None:
    created = await api.create(api.configmaps, configmap(n="1"))
    version = created["metadata"]["resourceVersion"]
    patch = {"metadata": {"resourceVersion": version}, "data": {"n": "2"}}
    assert (await api.patch(f"{api.configmaps}/settings", patch)).code == 200
    late = await api.patch(f"{api.configmaps}/settings", patch | {"data": {"n": "3"}})
    assert (late.code, late.reason) == (409, "Conflict")
    assert late.message == f'Operation cannot be fulfilled on configmaps "settings": {MODIFIED}'


async def test_a_patch_for_another_uid_is_refused(api: Api) -> None:
    await api.create(api.pods, pod())
    answer = await api.patch(f"{api.pods}/train", {"metadata": {"uid": "another", "annotations": {"a": "b"}}})
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert 'metadata.uid: Invalid value: "another": field is immutable' in answer.message
    assert "annotations" not in (await api.get(f"{api.pods}/train")).body["metadata"]


async def test_a_patch_cannot_rename(api: Api) -> None:
    await api.create(api.configmaps, configmap())
    answer = await api.patch(f"{api.configmaps}/settings", {"metadata": {"name": "other"}})
    assert answer.code == 400
    assert answer.message == "the name of the object (other) does not match the name on the URL (settings)"


async def test_an_unknown_kind_of_patch_is_an_unsupported_media_type(api: Api) -> None:
    await api.create(api.configmaps, configmap())
    answer = await api.patch(f"{api.configmaps}/settings", {}, content_type="application/unheard-of")
    assert (answer.code, answer.reason) == (415, "UnsupportedMediaType")


async def test_deleting_a_config_map_is_immediate_and_answers_with_a_status(api: Api) -> None:
    created = await api.create(api.configmaps, configmap())
    answer = await api.call("DELETE", f"{api.configmaps}/settings")
    uid = created["metadata"]["uid"]
    assert (answer.code, answer.body["status"]) == (200, "Success")
    assert answer.body["details"] == {"name": "settings", "kind": "configmaps", "uid": uid}
    assert (await api.get(f"{api.configmaps}/settings")).code == 404


async def test_a_finalizer_keeps_an_object_until_it_is_removed(api: Api) -> None:
    body = configmap() | {"metadata": {"name": "settings", "finalizers": ["example.com/wait"]}}
    await api.create(api.configmaps, body)
    assert (await api.call("DELETE", f"{api.configmaps}/settings")).code == 200
    marked = await api.get(f"{api.configmaps}/settings")
    assert marked.body["metadata"]["deletionTimestamp"]
    assert (await api.patch(f"{api.configmaps}/settings", {"metadata": {"finalizers": None}})).code == 200
    assert (await api.get(f"{api.configmaps}/settings")).code == 404


async def test_a_deletion_may_demand_a_uid_and_a_version(api: Api) -> None:
    created = await api.create(api.configmaps, configmap())
    for wanted in ({"uid": "another"}, {"resourceVersion": "1"}):
        answer = await api.call("DELETE", f"{api.configmaps}/settings", {"preconditions": wanted})
        assert (answer.code, answer.reason) == (409, "Conflict")
        assert "in the precondition" in answer.message
    right = {"uid": created["metadata"]["uid"], "resourceVersion": created["metadata"]["resourceVersion"]}
    assert (await api.call("DELETE", f"{api.configmaps}/settings", {"preconditions": right})).code == 200


async def test_an_event_lives_in_the_namespace_of_what_it_is_about(api: Api) -> None:
    event = {"metadata": {"generateName": "train."}, "reason": "Refused", "message": "no", "type": "Warning"}
    about = {"kind": "Pod", "name": "train", "namespace": api.namespace}
    await api.create(api.events, event | {"involvedObject": about})
    elsewhere = await api.call("POST", api.events, event | {"involvedObject": about | {"namespace": "default"}})
    assert elsewhere.code == 422
    assert "involvedObject.namespace" in elsewhere.message
    listed = await api.get(api.events, fieldSelector="involvedObject.name=train,involvedObject.kind=Pod")
    assert [item["reason"] for item in listed.body["items"]] == ["Refused"]


async def test_status_of_a_node_has_its_own_endpoint(api: Api) -> None:
    name = api_client.unique("node")
    path = f"/api/v1/nodes/{name}"
    await api.create("/api/v1/nodes", {"metadata": {"name": name}, "status": {"capacity": {api_client.GPU_MEM: "8"}}})
    try:
        through_main = await api.patch(path, {"status": {"capacity": {api_client.GPU_MEM: "9"}}})
        assert through_main.body["status"]["capacity"][api_client.GPU_MEM] == "8"
        patch = {"status": {"capacity": {api_client.GPU_MEM: "81920"}}, "spec": {"unschedulable": True}}
        through_status = await api.patch(f"{path}/status", patch)
        assert through_status.body["status"]["capacity"][api_client.GPU_MEM] == "81920"
        assert "unschedulable" not in through_status.body["spec"]
        fraction = await api.patch(f"{path}/status", {"status": {"capacity": {api_client.GPU_MEM: "1.5"}}})
        assert (fraction.code, fraction.reason) == (422, "Invalid")
    finally:
        answer = await api.call("DELETE", path)
    assert (answer.code, answer.body["status"]) == (200, "Success")


async def test_a_node_without_allocatable_gets_its_capacity(api: Api) -> None:
    name = api_client.unique("node")
    capacity = {"cpu": "4", "memory": "4096Mi", api_client.GPU_MEM: 10000}
    created = await api.create("/api/v1/nodes", {"metadata": {"name": name}, "status": {"capacity": capacity}})
    await api.call("DELETE", f"/api/v1/nodes/{name}")
    expected = {"cpu": "4", "memory": "4Gi", api_client.GPU_MEM: "10k"}
    assert created["status"]["capacity"] == created["status"]["allocatable"] == expected
