"""ClusterPolicies on a real API server: defaults appear, what cannot be meant is refused with the name of the field,
and every object that a policy asks for is accepted."""

import asyncio
import json
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import aiohttp
import pytest

from gpushare.operator.desired.component import Cluster as Seen
from tests.e2e.harness import shipped
from tests.e2e.harness.cluster import Cluster, Failed
from tests.e2e.harness.figures import Figures
from tests.support import policies
from tests.support.api_client import Api
from tests.support.wait import eventually_asked

CRD = shipped.DEPLOY / "crds" / "clusterpolicies.yaml"
PATH = "/apis/gpushare.io/v1alpha1/clusterpolicies"
NAME = "cluster-policy"
PATIENCE = 30.0  # seconds
KINDS = frozenset({"mutatingadmissionpolicies.admissionregistration.k8s.io/v1"})  # of the monitoring kinds none is here
REFUSED: dict[str, tuple[dict[str, Any], str]] = {  # by what is wrong: a policy, and what the message names
    "unknown component": ({"devicePlugins": {}}, 'unknown field "spec.devicePlugins"'),
    "unknown field of a component": ({"driver": {"enable": True}}, 'unknown field "spec.driver.enable"'),
    "unknown field of a toleration": ({"daemonsets": {"tolerations": [{"keys": "a"}]}}, "tolerations[0].keys"),
    "a word for a switch": ({"driver": {"enabled": "yes"}}, "spec.driver.enabled"),
    "too many slots": ({"sharing": {"mpsSlots": 49}}, "spec.sharing.mpsSlots"),
    "less than no memory": ({"sharing": {"reserveMiB": -1}}, "spec.sharing.reserveMiB"),
    "nothing that can be sold": ({"sharing": {"sell": "shares"}}, "spec.sharing.sell"),
    "no pull policy": ({"validator": {"imagePullPolicy": "Sometimes"}}, "spec.validator.imagePullPolicy"),
    "no number of nodes": ({"daemonsets": {"rollingUpdate": {"maxUnavailable": "0"}}}, "maxUnavailable"),
    "no path": ({"hostPaths": {"rootFS": "host"}}, "spec.hostPaths.rootFS"),
    "no amount": ({"mps": {"resources": {"limits": {"memory": "much"}}}}, "spec.mps.resources.limits"),
    "a variable twice": ({"gfd": {}, "finder": {"env": [{"name": "A"}, {"name": "A"}]}}, "spec.finder.env[1]"),
    "another image of no version": ({"devicePlugin": {"image": "other"}}, "image without version"),
    "a driver of no system": ({"driver": {"enabled": True, "version": "595.91.07"}}, "spec.driver.version"),
    "a daemon for nobody": ({"mps": {"enabled": True}}, "spec.mps.enabled needs something to serve"),
    "clients of MPS and others": (
        {"mps": {"enabled": True}, "sharing": {"mpsSlots": 4}, "admission": {"nvidiaGpu": "whole"}},
        "spec.mps.enabled and admission.nvidiaGpu whole exclude each other",
    ),
    "a toolkit that cannot find the driver": (
        {"toolkit": {"enabled": True}, "validator": {"enabled": False}}, "spec.toolkit.enabled needs validator.enabled",
    ),
    "an exporter without its program": (
        {"nodeStatusExporter": {"enabled": True}, "validator": {"enabled": False}},
        "spec.nodeStatusExporter.enabled needs validator.enabled",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def defined(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster knows ClusterPolicies, for all tests of this file."""
    asyncio.run(_define(cluster))
    try:
        yield cluster
    finally:
        asyncio.run(cluster.kubectl("delete", "-f", CRD))


async def _define(cluster: Cluster) -> None:
    await cluster.kubectl("apply", "-f", CRD)
    await eventually_asked(lambda: _known(cluster), "the definition", PATIENCE)


async def _known(cluster: Cluster) -> bool:
    """kubectl wait gives up if it asks before the definition has any status."""
    try:
        await cluster.get(PATH)
    except aiohttp.ClientResponseError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return False
    return True


def policy(spec: dict[str, Any] | None = None) -> str:
    body = {"apiVersion": "gpushare.io/v1alpha1", "kind": "ClusterPolicy", "metadata": {"name": NAME}}
    return json.dumps(body if spec is None else {**body, "spec": spec})


async def test_an_empty_policy_has_all_defaults(defined: Cluster) -> None:
    await defined.kubectl("apply", "-f", "-", given=policy())
    written = (await defined.get(f"{PATH}/{NAME}"))["spec"]
    assert written["sharing"] == {"sell": "memory", "memoryUnit": "MiB", "reserveMiB": 0, "mpsSlots": 0}
    assert written["driver"] == {"enabled": False, "imagePullPolicy": "IfNotPresent"}
    assert written["daemonsets"]["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    ]
    assert policies.spec(written) == policies.spec({})


async def test_people_see_state_and_age(defined: Cluster) -> None:
    await defined.kubectl("apply", "-f", "-", given=policy({}))
    status = {"status": {"state": "notReady", "components": [{"name": "driver", "state": "disabled"}]}}
    await defined.kubectl(
        "patch", "clusterpolicy", NAME, "--subresource=status", "--type=merge", "-p", json.dumps(status)
    )
    header, row = (await defined.kubectl("get", "clusterpolicy")).splitlines()
    assert header.split() == ["NAME", "STATUS", "AGE"]
    assert row.split()[:2] == [NAME, "notReady"]


@pytest.mark.parametrize("said", policies.POLICIES.values(), ids=policies.POLICIES.keys())
async def test_a_policy_that_can_be_served_is_accepted(defined: Cluster, said: dict[str, Any]) -> None:
    await defined.kubectl("apply", "--dry-run=server", "-f", "-", given=policy(said))


@pytest.mark.parametrize(("said", "named"), REFUSED.values(), ids=REFUSED.keys())
async def test_what_cannot_be_meant_is_refused_by_name(defined: Cluster, said: dict[str, Any], named: str) -> None:
    with pytest.raises(Failed) as refusal:
        await defined.kubectl("apply", "--dry-run=server", "-f", "-", given=policy(said))
    assert named in str(refusal.value)


@pytest.mark.parametrize("called", policies.POLICIES)
async def test_the_api_server_takes_every_object_of_a_policy(
    cluster: Cluster, api: Api, called: str, figures: Figures
) -> None:
    seen = Seen(api.namespace, (1, 36), "v1.36.4", policies.IMAGE, ("pull",), KINDS)
    objects = policies.objects({**policies.POLICIES[called], "monitoring": {"enabled": False}}, seen)
    given = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    dry_run = ("--server-side", "--force-conflicts", "--field-manager=gpushare-operator", "--dry-run=server")
    answer = await cluster.kubectl("apply", *dry_run, "--validate=strict", "-f", "-", given=given)
    lines = answer.splitlines()
    assert len(lines) == len(objects), answer
    assert all(line.endswith("serverside-applied (server dry run)") for line in lines), answer
    figures.say(f"policy {called}", f"{len(objects)} objects, all taken by the API server")
