"""What kubectl asks besides (discovery, OpenAPI), and what it is refused (changes by apply, protobuf, odd objects)."""

from typing import Any

import pytest

from gpushare.devcluster.apiserver.kinds import table
from tests.contracts.api import test_api_behaviour_workloads as bodies
from tests.support.api_client import STRATEGIC, Api, Object, configmap, pod

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
OPENAPI = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
BY_APPLY = {"content_type": STRATEGIC, "fieldManager": "kubectl-client-side-apply"}


async def test_discovery_names_what_there_is(api: Api) -> None:
    assert (await api.get("/api")).body["versions"] == ["v1"]
    groups = (await api.get("/apis")).body["groups"]
    assert [group["preferredVersion"]["groupVersion"] for group in groups] == [
        "apps/v1",
        "batch/v1",
        "gpushare.io/v1alpha1",
    ]
    assert (await api.get("/apis/apps")).body["name"] == "apps"
    core = {resource["name"] for resource in (await api.get("/api/v1")).body["resources"]}
    assert {"pods", "pods/binding", "pods/status", "pods/log", "nodes", "configmaps", "events", "namespaces"} <= core
    apps = {resource["name"]: resource for resource in (await api.get("/apis/apps/v1")).body["resources"]}
    assert set(apps) == {"deployments", "deployments/status", "deployments/scale"}
    assert (apps["deployments"]["shortNames"], apps["deployments"]["categories"]) == (["deploy"], ["all"])
    assert (apps["deployments/scale"]["group"], apps["deployments/scale"]["kind"]) == ("autoscaling", "Scale")
    assert (await api.get("/readyz")).body == b"ok"


async def test_every_resource_that_is_named_is_there(api: Api) -> None:
    for kind in table.KINDS:
        begin = f"/apis/{kind.api_version}" if kind.group else "/api/v1"
        listed = await api.get(f"{begin}/{kind.plural}")
        assert (listed.code, listed.body["kind"], listed.body["apiVersion"]) == (
            200,
            f"{kind.kind}List",
            kind.api_version,
        )


async def test_who_asks_for_all_of_discovery_at_once_is_told_to_ask_on(api: Api) -> None:
    """A client that cannot get it in one piece takes the plain form for an answer."""
    for path, kind in (("/api", "APIVersions"), ("/apis", "APIGroupList")):
        async with api.session.get(api.url + path, headers={"Accept": AGGREGATED}) as response:
            assert "as=" not in response.headers["Content-Type"]
            assert (await response.json())["kind"] == kind


async def test_the_version_is_one_that_clients_can_read(api: Api) -> None:
    assert (await api.get("/version")).body["gitVersion"] == "v1.36.0+gpushare-devcluster"


async def test_groups_and_versions_that_are_not_there_are_not_found(api: Api) -> None:
    for path in (
        "/apis/apps/v1beta1",
        "/apis/gpushare.io/v1",
        "/apis/gpushare.io/v1/gpunodes",
        "/apis/policy",
        "/apis/policy/v1",
        "/apis/apps/v1/pods",
        "/api/v1/deployments",
    ):
        answer = await api.get(path)
        assert (answer.code, answer.reason) == (404, "NotFound"), path


async def test_openapi_says_of_each_kind_that_the_server_checks_fields(api: Api) -> None:
    listed = (await api.get("/openapi/v3")).body["paths"]
    assert set(listed) == {"api/v1", "apis/apps/v1", "apis/batch/v1", "apis/gpushare.io/v1alpha1"}
    found = {}
    for entry in listed.values():
        for path in (await api.get(entry["serverRelativeURL"])).body["paths"].values():
            what = path["patch"]["x-kubernetes-group-version-kind"]
            found[what["kind"]] = [parameter["name"] for parameter in path["patch"]["parameters"]]
    assert found == {kind.kind: ["fieldValidation"] for kind in table.KINDS}
    assert (await api.get("/openapi/v3/apis/policy/v1")).code == 404


async def test_the_old_openapi_is_empty_in_both_forms(api: Api) -> None:
    assert (await api.get("/openapi/v2")).body["definitions"] == {}
    async with api.session.get(f"{api.url}/openapi/v2", headers={"Accept": OPENAPI}) as response:
        assert (response.status, await response.read()) == (200, b"")
        assert "@" not in response.headers["Content-Type"], "kubectl could not read it"


async def test_a_body_in_protobuf_is_refused_with_a_way_out(api: Api) -> None:
    answer = await api.call("POST", api.configmaps, b"k8s\x00", content_type="application/vnd.kubernetes.protobuf")
    assert (answer.code, answer.reason) == (415, "UnsupportedMediaType")
    assert "--dry-run=client -o yaml | kubectl create -f -" in answer.message


async def test_apply_may_say_in_other_words_what_is_there(api: Api) -> None:
    body = bodies.deployment()
    body["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"aliyun.com/gpu-mem": "7000"}}
    before = await api.create(bodies.deployments(api), body)
    container = {"name": "main", "resources": {"limits": {"aliyun.com/gpu-mem": 7000}}}
    patch = {
        "spec": {"template": {"spec": {"containers": [container], "$setElementOrder/containers": [{"name": "main"}]}}}
    }
    answer = await api.call("PATCH", f"{bodies.deployments(api)}/web", patch, **BY_APPLY)
    assert (answer.code, answer.version) == (200, before["metadata"]["resourceVersion"])
    noted = {"metadata": {"annotations": {LAST_APPLIED: "{}"}}}
    assert (await api.call("PATCH", f"{bodies.deployments(api)}/web", noted, **BY_APPLY)).code == 200


@pytest.mark.parametrize("change", [{"spec": {"replicas": 3}}, {"metadata": {"labels": {"a": "b"}}}])
async def test_apply_may_change_nothing_and_says_what_to_use_instead(api: Api, change: Object) -> None:
    before = await api.create(bodies.deployments(api), bodies.deployment())
    path = f"{bodies.deployments(api)}/web"
    refused = await api.call("PATCH", path, change, **BY_APPLY)
    assert (refused.code, refused.reason) == (415, "UnsupportedMediaType")
    assert "use kubectl replace" in refused.message
    server_side = await api.call("PATCH", path, change, content_type="application/apply-patch+yaml")
    assert (server_side.code, "use kubectl replace" in server_side.message) == (415, True)
    assert (await api.get(path)).version == before["metadata"]["resourceVersion"]
    others = await api.call("PATCH", path, change, content_type=STRATEGIC, fieldManager="kubectl-edit")
    assert others.code == 200


@pytest.mark.parametrize(
    ("field", "value"),
    [("paused", True), ("minReadySeconds", 5)],
)
async def test_what_our_deployments_do_not_do_is_refused_not_ignored(api: Api, field: str, value: Any) -> None:
    answer = await api.call("POST", bodies.deployments(api), bodies.deployment(**{field: value}))
    assert (answer.code, answer.reason) == (501, "NotImplemented")
    assert f"spec.{field} of a Deployment" in answer.message


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("activeDeadlineSeconds", 5),
        ("backoffLimitPerIndex", 1),
        ("completionMode", "Indexed"),
        ("manualSelector", True),
        ("podReplacementPolicy", "Failed"),
        ("suspend", True),
        ("ttlSecondsAfterFinished", 0),
    ],
)
async def test_what_our_jobs_do_not_do_is_refused_not_ignored(api: Api, field: str, value: Any) -> None:
    answer = await api.call("POST", bodies.jobs(api), bodies.job(**{field: value}))
    assert (answer.code, answer.reason) == (501, "NotImplemented")
    assert f"spec.{field} of a Job" in answer.message


ODD_POD_SPECS: list[Any] = [
    {"containers": [{"name": "main", "image": "x", "command": "sleep"}]},
    {"containers": [{"name": "main", "image": "x", "args": [5]}]},
    {"containers": [{"name": "main", "image": "x", "env": [5]}]},
    {"containers": [{"name": "main", "image": "x", "env": [{"name": "A", "valueFrom": 5}]}]},
    {"containers": [{"name": "main", "image": "x", "ports": [5]}]},
    {"containers": 5},
    {"initContainers": [5]},
    {"restartPolicy": 5},
]
ODD_STATUSES: list[Any] = [
    {"conditions": "x"},
    {"conditions": [{"type": 5}]},
    {"phase": 5},
    {"containerStatuses": [5]},
    {"containerStatuses": [{"name": "main", "restartCount": "3"}]},
    {"containerStatuses": [{"name": "main", "state": {"terminated": 5}}]},
]


@pytest.mark.parametrize("spec", ODD_POD_SPECS)
async def test_a_pod_of_another_shape_is_a_bad_request_also_in_a_template(api: Api, spec: Object) -> None:
    body = pod()
    web = bodies.deployment()
    web["spec"]["template"]["spec"] |= spec
    for path, obj in ((api.pods, body | {"spec": body["spec"] | spec}), (bodies.deployments(api), web)):
        answer = await api.call("POST", path, obj)
        assert (answer.code, answer.reason) == (400, "BadRequest"), answer.body


@pytest.mark.parametrize("status", ODD_STATUSES)
async def test_a_status_of_another_shape_is_a_bad_request(api: Api, status: Object) -> None:
    await api.create(api.pods, pod())
    answer = await api.patch(f"{api.pods}/train/status", {"status": status})
    assert (answer.code, answer.reason) == (400, "BadRequest"), answer.body


@pytest.mark.parametrize(
    "spec",
    [
        {"template": 5},
        {"selector": 5},
        {"selector": {"matchExpressions": [{"key": "a", "operator": "Sometimes"}]}},
        {"strategy": {"rollingUpdate": {"maxSurge": []}}},
        {"strategy": {"rollingUpdate": {"maxSurge": "some"}}},
        {"strategy": {"rollingUpdate": {"maxUnavailable": -1}}},
    ],
)
async def test_a_deployment_of_another_shape_is_refused(api: Api, spec: Object) -> None:
    body = bodies.deployment()
    body["spec"] |= spec
    answer = await api.call("POST", bodies.deployments(api), body)
    assert answer.reason in ("BadRequest", "Invalid")


async def test_a_node_or_an_event_of_another_shape_is_a_bad_request(api: Api) -> None:
    statuses: list[Any] = [{"addresses": [5]}, {"conditions": "x"}, {"nodeInfo": []}]
    events: list[Any] = [{"involvedObject": "x"}, {"source": 5}, {"message": []}, {"count": "3"}]
    for status in statuses:
        answer = await api.call("POST", "/api/v1/nodes", {"metadata": {"name": "odd"}, "status": status})
        assert (answer.code, answer.reason) == (400, "BadRequest"), status
    for event in events:
        answer = await api.call("POST", api.events, {"metadata": {"name": "odd"}} | event)
        assert (answer.code, answer.reason) == (400, "BadRequest"), event


@pytest.mark.parametrize("metadata", [{"ownerReferences": [5]}, {"ownerReferences": "x"}, {"finalizers": [5]}])
async def test_metadata_of_another_shape_is_a_bad_request(api: Api, metadata: Object) -> None:
    body = configmap()
    body["metadata"] |= metadata
    assert (await api.call("POST", api.configmaps, body)).code == 400


async def test_what_becomes_of_pods_can_be_said_in_the_query_too(api: Api) -> None:
    path = f"{bodies.deployments(api)}/web"
    await api.create(bodies.deployments(api), bodies.deployment())
    for _ in range(2):
        await api.call("DELETE", path, propagationPolicy="Orphan")
        assert (await api.get(path)).body["metadata"]["finalizers"] == ["orphan"], "and nobody here takes it away"
    await api.create(api.configmaps, configmap())
    await api.call("DELETE", f"{api.configmaps}/settings", propagationPolicy="Foreground")
    assert (await api.get(f"{api.configmaps}/settings")).code == 404, "it owns nothing"
