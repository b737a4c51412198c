"""When is a scheduler taken for well, and how is it known that it asks the extender: on one control plane, and on
several, of which one leads."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from gpushare.core.facts import names
from gpushare.install import proof
from gpushare.install.proof import NotProven
from gpushare.kube.client import Api
from gpushare.obs.errors import CLUSTER_NOT_ASKED, UserError
from tests.install.control_planes import CRASHED, ControlPlanes
from tests.support.wait import PATIENCE

SHORT = 0.3  # seconds, for what never comes


@pytest.fixture
def planes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ControlPlanes:
    monkeypatch.setattr(proof, "PAUSE", 0.01)
    return ControlPlanes(tmp_path)


@pytest.fixture
async def api(planes: ControlPlanes) -> AsyncIterator[Api]:
    async with planes.serving() as api:
        yield api


async def proven(planes: ControlPlanes, api: Api, seconds: float = 20.0) -> str:
    return await planes.control(api, seconds=seconds).proven(planes.plan)


async def test_a_scheduler_that_has_asked_is_proven_and_nothing_is_left(planes: ControlPlanes, api: Api) -> None:
    planes.add("cp-1")
    assert await proven(planes, api) == proof.BY_THIS
    (pod,) = planes.made
    assert planes.asking == []
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {names.GPU_MEM: "0"}


async def test_a_pod_that_a_killed_run_has_left_is_deleted(planes: ControlPlanes, api: Api) -> None:
    planes.add("cp-1")
    metadata = {"name": "gpushare-only-asked-x", "labels": {"app": "gpushare"}, "annotations": {names.ONLY_ASKED: "1"}}
    planes.pods["gpushare-only-asked-x"] = {"metadata": metadata, "spec": {}}
    await planes.control(api).check(planes.plan)
    assert planes.asking == []


async def test_a_pod_that_was_placed_proves_that_nobody_asked(planes: ControlPlanes, api: Api) -> None:
    planes.add("cp-1")
    planes.places = "gpu-a"
    with pytest.raises(NotProven, match="on node gpu-a that our extender refuses"):
        await proven(planes, api)
    assert planes.asking == []


async def test_what_the_scheduler_says_is_the_reason(planes: ControlPlanes, api: Api) -> None:
    planes.add("cp-1")
    planes.says = "failed choose with extender, code 404"
    with pytest.raises(NotProven, match="code 404"):
        await proven(planes, api, SHORT)


async def test_a_scheduler_that_crashes_is_quoted(planes: ControlPlanes, api: Api) -> None:
    planes.add("cp-1", status=CRASHED)
    with pytest.raises(NotProven, match="exit code 1; its log ends: E0 the last words"):
        await proven(planes, api, SHORT)
    assert planes.made == []


async def test_an_old_manifest_is_not_enough(planes: ControlPlanes, api: Api) -> None:
    planes.add("cp-1", edited=False)
    with pytest.raises(NotProven, match="not taken up the new manifest"):
        await proven(planes, api, SHORT)


async def test_a_scheduler_whose_probe_fails_is_not_well(planes: ControlPlanes, api: Api) -> None:
    planes.add("cp-1")
    planes.extender_status = 500
    with pytest.raises(NotProven, match="it answers 500"):
        await proven(planes, api, SHORT)


# Several control planes


async def test_where_another_leads_that_does_not_know_us_nothing_is_asked(planes: ControlPlanes, api: Api) -> None:
    planes.add("cp-1")
    planes.add("cp-2", edited=False)
    planes.holder = "cp-2_8f3a"
    assert await proven(planes, api) == proof.NOT_LEADING.format(node="cp-2")
    assert planes.made == []


async def test_where_another_leads_that_knows_us_that_one_asks(planes: ControlPlanes, api: Api) -> None:
    planes.add("cp-1")
    planes.add("cp-2")
    planes.holder = "cp-2_8f3a"
    assert await proven(planes, api) == proof.BY_LEADER.format(node="cp-2")


async def test_a_lease_that_nobody_renews_names_no_leader(planes: ControlPlanes, api: Api) -> None:
    planes.add("cp-1")
    planes.add("cp-2", edited=False)
    planes.holder, planes.renews = "cp-1_8f3a", False
    with pytest.raises(NotProven, match="no kube-scheduler leads"):
        await proven(planes, api, SHORT)
    assert planes.made == []


async def test_another_that_takes_over_meanwhile_is_no_reason_to_go_back(planes: ControlPlanes, api: Api) -> None:
    planes.add("cp-1")
    planes.add("cp-2", edited=False)
    planes.holder = "cp-1_8f3a"
    made = planes.made

    class TakingOver(list[object]):
        def append(self, pod: object) -> None:
            planes.holder, planes.places = "cp-2_77aa", "gpu-a"
            super().append(pod)

    planes.made = TakingOver(made)  # type: ignore[assignment]
    assert await proven(planes, api) == proof.NOT_LEADING.format(node="cp-2")
    assert planes.asking == []


# Before anything is changed


async def refused(planes: ControlPlanes, api: Api, node: str = "cp-1") -> UserError:
    with pytest.raises(UserError) as error:
        await planes.control(api, node).check(planes.plan)
    return error.value


async def test_a_node_of_another_name_is_said_with_those_that_are_there(planes: ControlPlanes, api: Api) -> None:
    planes.add("cp-1", edited=False)
    error = await refused(planes, api, "cp-one")
    assert "kube-scheduler-cp-1" in error.why
    assert error.way.startswith("--node-name")


async def test_an_extender_that_is_not_ready_is_said(planes: ControlPlanes, api: Api) -> None:
    planes.add("cp-1", edited=False)
    planes.extender_status = 503
    error = await refused(planes, api)
    assert (error.code, "not now" in error.why) == (CLUSTER_NOT_ASKED, True)


async def test_missing_rights_are_said(planes: ControlPlanes, api: Api) -> None:
    planes.add("cp-1", edited=False)
    planes.forbids = 'User "dev" cannot create resource "pods" in API group "" in the namespace "kube-system"'
    assert (await refused(planes, api)).what.startswith("not allowed: create pods")


async def test_admission_that_gives_gpu_pods_to_another_scheduler_is_said(planes: ControlPlanes, api: Api) -> None:
    planes.add("cp-1", edited=False)
    planes.scheduler_name = "gpu-scheduler"
    assert "gpu-scheduler" in (await refused(planes, api)).why


async def test_back_means_running_with_the_words_of_the_manifest(planes: ControlPlanes, api: Api) -> None:
    planes.add("cp-1", edited=False)
    await planes.control(api).back(planes.plan.manifest)
    planes.add("cp-1")
    with pytest.raises(NotProven):
        await planes.control(api, seconds=SHORT).back(planes.plan.manifest)


async def test_a_pod_that_was_placed_while_nobody_leads_is_no_reason_to_wait_for_ever(planes: ControlPlanes) -> None:
    """The scheduler that placed it has ended, and its lease is not renewed."""
    real = planes._create

    async def create(request: web.Request) -> web.Response:
        planes.renews = False
        return await real(request)

    planes._create = create  # type: ignore[method-assign, assignment]
    async with planes.serving() as api, asyncio.timeout(PATIENCE):
        planes.add("cp-1")
        planes.add("cp-2")
        planes.holder, planes.places = "cp-1_x", "gpu-a"
        with pytest.raises(NotProven, match="it did not ask"):
            await planes.control(api, seconds=1.0).proven(planes.plan)
