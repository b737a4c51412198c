"""What any API server does with Deployments and Jobs before a controller sees them, and with /scale. Only HTTP."""

from typing import Any

import pytest

from tests.support.api_client import GPU_MEM, MERGE, Api, Object


def deployment(name: str = "web", **spec: Any) -> Object:
    """Without replicas, so that no controller has anything to do."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "busybox"}]}}
    wanted = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": name}, "spec": wanted | spec}


def job(name: str = "batch", **spec: Any) -> Object:
    containers = [{"name": "main", "image": "busybox"}]
    template = {"spec": {"restartPolicy": "Never", "containers": containers, "schedulerName": "nobody"}}
    return {"metadata": {"name": name}, "spec": {"template": template, "parallelism": 0} | spec}


def deployments(api: Api) -> str:
    return f"/apis/apps/v1/namespaces/{api.namespace}/deployments"


def jobs(api: Api) -> str:
    return f"/apis/batch/v1/namespaces/{api.namespace}/jobs"


async def test_a_new_deployment_has_the_defaults_of_the_server(api: Api) -> None:
    body = deployment()
    del body["spec"]["replicas"]
    body["spec"]["template"]["spec"]["schedulerName"] = "nobody"
    created = await api.create(deployments(api), body)
    spec = created["spec"]
    assert (created["kind"], created["apiVersion"]) == ("Deployment", "apps/v1")
    assert created["metadata"]["generation"] == 1
    assert (spec["replicas"], spec["revisionHistoryLimit"], spec["progressDeadlineSeconds"]) == (1, 10, 600)
    assert spec["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
    }
    assert spec["template"]["spec"]["restartPolicy"] == "Always"


async def test_a_new_job_has_the_defaults_of_the_server_and_selects_by_its_own_uid(api: Api) -> None:
    created = await api.create(jobs(api), job())
    spec, uid = created["spec"], created["metadata"]["uid"]
    assert (created["kind"], created["apiVersion"]) == ("Job", "batch/v1")
    assert (spec["parallelism"], spec["backoffLimit"], spec["suspend"]) == (0, 6, False)
    assert "completions" not in spec
    assert spec["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    labels = spec["template"]["metadata"]["labels"]
    assert (labels["job-name"], labels["batch.kubernetes.io/controller-uid"]) == ("batch", uid)


async def test_amounts_in_a_template_are_rewritten_too(api: Api) -> None:
    body = deployment()
    body["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {GPU_MEM: 7000}}
    template = (await api.create(deployments(api), body))["spec"]["template"]
    needs = template["spec"]["containers"][0]["resources"]
    assert needs["limits"] == {GPU_MEM: "7k"}


async def test_a_changed_spec_is_a_new_generation(api: Api) -> None:
    for path, change in (
        (f"{deployments(api)}/web", {"revisionHistoryLimit": 1}),
        (f"{jobs(api)}/batch", {"backoffLimit": 1}),
    ):
        await api.create(path.rpartition("/")[0], deployment() if path.endswith("web") else job())
        labelled = await api.patch(path, {"metadata": {"labels": {"a": "b"}}})
        assert labelled.body["metadata"]["generation"] == 1
        assert (await api.patch(path, {"spec": change})).body["metadata"]["generation"] == 2


async def test_status_is_written_through_its_own_endpoint_only(api: Api) -> None:
    await api.create(jobs(api), job())
    through_main = await api.patch(f"{jobs(api)}/batch", {"status": {"succeeded": 7}})
    assert (through_main.code, through_main.body["status"].get("succeeded")) == (200, None)
    through_status = await api.patch(f"{jobs(api)}/batch/status", {"spec": {"parallelism": 3}})
    assert (through_status.code, through_status.body["spec"]["parallelism"]) == (200, 0)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"selector": {"matchLabels": {"app": "other"}}}, "`selector` does not match template `labels`"),
        ({"selector": None}, "spec.selector: Required value"),
        ({"replicas": -1}, "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
        ({"strategy": {"type": "Sideways"}}, 'supported values: "Recreate", "RollingUpdate"'),
        (
            {"template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}}},
            "spec.template.spec.containers: Required value",
        ),
    ],
)
async def test_a_wrong_deployment_is_invalid(api: Api, spec: Object, sentence: str) -> None:
    answer = await api.call("POST", deployments(api), deployment(**spec))
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert answer.message.startswith('Deployment.apps "web" is invalid: ')
    assert sentence in answer.message
    assert (answer.body["details"]["group"], answer.body["details"]["kind"]) == ("apps", "Deployment")


async def test_pods_of_a_deployment_are_always_restarted(api: Api) -> None:
    body = deployment()
    body["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    answer = await api.call("POST", deployments(api), body)
    sentence = 'spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"'
    assert (answer.code, sentence in answer.message) == (422, True)


async def test_pods_of_a_job_are_not(api: Api) -> None:
    body = job()
    del body["spec"]["template"]["spec"]["restartPolicy"]
    answer = await api.call("POST", jobs(api), body)
    sentence = 'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'
    assert (answer.code, sentence in answer.message) == (422, True)


async def test_numbers_are_numbers(api: Api) -> None:
    for path, body in ((deployments(api), deployment(replicas="3")), (jobs(api), job(backoffLimit="3"))):
        answer = await api.call("POST", path, body)
        assert (answer.code, answer.reason) == (400, "BadRequest")


async def test_whom_a_deployment_selects_never_changes(api: Api) -> None:
    await api.create(deployments(api), deployment())
    change = {"selector": {"matchLabels": {"tier": "1"}}, "template": {"metadata": {"labels": {"tier": "1"}}}}
    answer = await api.patch(f"{deployments(api)}/web", {"spec": change})
    assert (answer.code, "spec.selector: Invalid value: " in answer.message) == (422, True)
    assert "field is immutable" in answer.message


async def test_what_a_job_runs_never_changes(api: Api) -> None:
    await api.create(jobs(api), job())
    image = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "busybox:2"}]}}}}
    refused = await api.patch(f"{jobs(api)}/batch", image)
    assert (refused.code, "field is immutable" in refused.message) == (422, True)
    allowed = await api.patch(f"{jobs(api)}/batch", {"spec": {"backoffLimit": 2}})
    assert allowed.body["spec"]["backoffLimit"] == 2


async def test_scale_shows_and_sets_the_number_of_replicas(api: Api) -> None:
    await api.create(deployments(api), deployment())
    path = f"{deployments(api)}/web/scale"
    scale = await api.get(path)
    assert (scale.body["kind"], scale.body["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert scale.body["status"]["selector"] == "app=web"
    assert scale.body["metadata"]["name"] == "web"
    patched = await api.call("PATCH", path, {"spec": {"replicas": 3}}, content_type=MERGE)
    assert (patched.code, patched.body["kind"], patched.body["spec"]) == (200, "Scale", {"replicas": 3})
    assert (await api.get(f"{deployments(api)}/web")).body["spec"]["replicas"] == 3
    wanted = {"metadata": {"name": "web"}, "spec": {"replicas": 0}}
    assert (await api.call("PUT", path, wanted)).code == 200
    found = (await api.get(f"{deployments(api)}/web")).body
    assert (found["spec"]["replicas"], found["metadata"]["generation"]) == (0, 3)


async def test_a_scale_can_demand_a_version_and_is_not_negative(api: Api) -> None:
    await api.create(deployments(api), deployment())
    path = f"{deployments(api)}/web/scale"
    old = {"metadata": {"name": "web", "resourceVersion": "1"}, "spec": {"replicas": 1}}
    late = await api.call("PUT", path, old)
    assert (late.code, late.reason) == (409, "Conflict")
    negative = await api.call("PATCH", path, {"spec": {"replicas": -1}}, content_type=MERGE)
    assert (negative.code, "must be greater than or equal to 0" in negative.message) == (422, True)
    missing = await api.get(f"{deployments(api)}/none/scale")
    assert (missing.code, missing.message) == (404, 'deployments.apps "none" not found')


async def test_lists_and_refusals_name_the_group(api: Api) -> None:
    await api.create(deployments(api), deployment())
    listed = await api.get(deployments(api))
    assert (listed.body["kind"], listed.body["apiVersion"], listed.names()) == ("DeploymentList", "apps/v1", ["web"])
    missing = await api.get(f"{jobs(api)}/none")
    assert (missing.code, missing.message) == (404, 'jobs.batch "none" not found')
    assert missing.body["details"] == {"name": "none", "group": "batch", "kind": "jobs"}
    again = await api.call("POST", deployments(api), deployment())
    assert (again.code, again.message) == (409, 'deployments.apps "web" already exists')


async def test_a_watch_of_deployments_names_their_version(api: Api) -> None:
    version = (await api.get(deployments(api))).version
    async with api.watch(deployments(api), resourceVersion=version) as watch:
        await api.create(deployments(api), deployment())
        type_, obj = await watch.next()
    assert (type_, obj["kind"], obj["apiVersion"], obj["metadata"]["name"]) == ("ADDED", "Deployment", "apps/v1", "web")


async def test_deleting_one_answers_with_a_status(api: Api) -> None:
    created = await api.create(deployments(api), deployment())
    answer = await api.call("DELETE", f"{deployments(api)}/web", {"propagationPolicy": "Background"})
    details = {"name": "web", "group": "apps", "kind": "deployments", "uid": created["metadata"]["uid"]}
    assert (answer.code, answer.body["status"], answer.body["details"]) == (200, "Success", details)
    assert (await api.get(f"{deployments(api)}/web")).code == 404
