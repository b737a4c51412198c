"""What any API server does with lists and watches: selectors, pages, versions, transitions. Only HTTP."""

import pytest

from tests.support import api_client
from tests.support.api_client import Api, configmap, pod


async def _three_pods(api: Api) -> None:
    await api.create(api.pods, pod("a", labels={"team": "red", "tier": "1"}))
    await api.create(api.pods, pod("b", labels={"team": "blue"}))
    await api.create(api.pods, pod("c"))
    await api.bind("b", "node-1")


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("metadata.name=a", "a"),
        ("metadata.name!=a", "bc"),
        ("spec.nodeName=", "ac"),
        ("spec.nodeName!=", "b"),
        ("spec.nodeName==node-1", "b"),
        ("status.phase=Pending,spec.nodeName!=node-1", "ac"),
        ("status.phase=Running", ""),
        ("spec.schedulerName=nobody", "abc"),
        ("metadata.namespace=default", ""),
    ],
)
async def test_field_selectors_select(api: Api, selector: str, expected: str) -> None:
    await _three_pods(api)
    assert "".join((await api.get(api.pods, fieldSelector=selector)).names()) == expected


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("team=red", "a"),
        ("team==red", "a"),
        ("team!=red", "bc"),
        ("team in (red, blue)", "ab"),
        ("team notin (red)", "bc"),
        ("team", "ab"),
        ("!team", "c"),
        ("team,tier=1", "a"),
        ("team=red,tier!=1", ""),
        ("", "abc"),
    ],
)
async def test_label_selectors_select(api: Api, selector: str, expected: str) -> None:
    await _three_pods(api)
    assert "".join((await api.get(api.pods, labelSelector=selector)).names()) == expected


async def test_a_selector_that_cannot_be_read_is_a_bad_request(api: Api) -> None:
    unknown = await api.get(api.pods, fieldSelector="spec.colour=red")
    assert (unknown.code, unknown.message) == (400, "field label not supported: spec.colour")
    assert (await api.get(api.pods, labelSelector="team in red")).code == 400
    assert (await api.get(api.pods, limit="x")).code == 400
    assert (await api.get(api.pods, resourceVersion="abc")).code == 400
    assert (await api.get(api.pods, **{"continue": "abc"})).code == 400


async def test_a_list_of_all_namespaces_holds_every_namespace(api: Api) -> None:
    await api.create(api.pods, pod("here"))
    everywhere = await api.get("/api/v1/pods", fieldSelector=f"metadata.namespace={api.namespace}")
    assert everywhere.names() == ["here"]
    assert everywhere.body["kind"] == "PodList"
    assert "kind" not in everywhere.body["items"][0], "inside a list, items do not repeat their kind"


async def test_pages_are_of_one_moment_and_in_order(api: Api) -> None:
    names = [f"c-{i:02}" for i in range(10)]
    for name in reversed(names):
        await api.create(api.configmaps, configmap(name, n="old"))
    page = await api.get(api.configmaps, limit=4)
    version, seen = page.version, page.names()
    assert page.body["metadata"]["remainingItemCount"] in (6, 7), "a real cluster puts kube-root-ca.crt beside ours"
    await api.create(api.configmaps, configmap("c-045"))
    await api.call("DELETE", f"{api.configmaps}/c-09")
    await api.patch(f"{api.configmaps}/c-08", {"data": {"n": "new"}})
    items = []
    while token := page.body["metadata"].get("continue"):
        page = await api.get(api.configmaps, limit=4, **{"continue": token})
        assert page.version == version
        seen += page.names()
        items += page.body["items"]
    assert [name for name in seen if name != "kube-root-ca.crt"] == names
    assert all(item["data"] == {"n": "old"} for item in items if item["metadata"]["name"] in names)


async def test_a_page_of_selected_objects_is_filled(api: Api) -> None:
    for i in range(9):
        await api.create(api.pods, pod(f"p-{i}", labels={"odd": str(i % 2)}))
    first = await api.get(api.pods, limit=3, labelSelector="odd=1")
    assert first.names() == ["p-1", "p-3", "p-5"]
    assert "remainingItemCount" not in first.body["metadata"]
    token = {"continue": first.body["metadata"]["continue"]}
    assert (await api.get(api.pods, limit=3, labelSelector="odd=1", **token)).names() == ["p-7"]


async def test_a_version_of_the_future_is_not_served(api: Api) -> None:
    answer = await api.get(api.pods, resourceVersion="999999999999", timeoutSeconds=1)
    assert (answer.code, answer.reason) == (504, "Timeout")
    assert "Too large resource version: 999999999999" in answer.message


async def test_a_watch_goes_on_where_a_list_ended(api: Api) -> None:
    await api.create(api.pods, pod("before"))
    version = (await api.get(api.pods)).version
    created = await api.create(api.pods, pod("a"))
    async with api.watch(api.pods, resourceVersion=version) as watch:
        await api.patch(f"{api.pods}/a", {"metadata": {"annotations": {"n": "1"}}})
        type_, obj = await watch.next()
        assert (type_, obj["metadata"]["resourceVersion"]) == ("ADDED", created["metadata"]["resourceVersion"])
        assert (obj["kind"], obj["apiVersion"]) == ("Pod", "v1")
        type_, obj = await watch.next()
        assert (type_, obj["metadata"]["annotations"]) == ("MODIFIED", {"n": "1"})


async def test_a_watch_from_zero_starts_with_what_is_there(api: Api) -> None:
    for name in "abc":
        await api.create(api.configmaps, configmap(name))
    mine = {"fieldSelector": f"metadata.namespace={api.namespace}"}
    async with api.watch("/api/v1/configmaps", resourceVersion="0", **mine) as watch:
        seen = [event for event in await watch.named(3) if event[1] in "abc"]
    assert sorted(seen)[:1] == [("ADDED", "a")]


async def test_a_deletion_is_seen_with_the_last_state_and_a_new_version(api: Api) -> None:
    created = await api.create(api.configmaps, configmap(colour="red"))
    async with api.watch(api.configmaps, resourceVersion=created["metadata"]["resourceVersion"]) as watch:
        await api.call("DELETE", f"{api.configmaps}/settings")
        type_, obj = await watch.next()
    assert (type_, obj["data"]) == ("DELETED", {"colour": "red"})
    assert int(obj["metadata"]["resourceVersion"]) > int(created["metadata"]["resourceVersion"])


async def test_deleting_an_unbound_pod_is_seen_as_a_mark_and_then_the_deletion(api: Api) -> None:
    created = await api.create(api.pods, pod())
    async with api.watch(api.pods, resourceVersion=created["metadata"]["resourceVersion"]) as watch:
        await api.call("DELETE", f"{api.pods}/train")
        events = [await watch.next() for _ in range(2)]
    assert [type_ for type_, _ in events] == ["MODIFIED", "DELETED"]
    assert all(obj["metadata"]["deletionTimestamp"] for _, obj in events)


async def test_an_object_that_stops_matching_goes_and_one_that_starts_comes(api: Api) -> None:
    version = (await api.get(api.pods)).version
    unbound = {"resourceVersion": version, "fieldSelector": "spec.nodeName="}
    bound = {"resourceVersion": version, "fieldSelector": "spec.nodeName=node-1"}
    async with api.watch(api.pods, **unbound) as pending, api.watch(api.pods, **bound) as placed:
        await api.create(api.pods, pod())
        await api.bind("train", "node-1")
        assert await pending.named(1) == [("ADDED", "train")]
        type_, obj = await pending.next()
        assert (type_, obj["spec"].get("nodeName")) == ("DELETED", None), "shown as it was when it last matched"
        type_, obj_placed = await placed.next()
        assert (type_, obj_placed["spec"]["nodeName"]) == ("ADDED", "node-1")
        assert obj["metadata"]["resourceVersion"] == obj_placed["metadata"]["resourceVersion"]


async def test_a_label_selects_the_same_way_in_a_watch(api: Api) -> None:
    version = (await api.get(api.pods)).version
    async with api.watch(api.pods, resourceVersion=version, labelSelector="team=red") as watch:
        await api.create(api.pods, pod("blue", labels={"team": "blue"}))
        await api.create(api.pods, pod("red", labels={"team": "red"}))
        await api.patch(f"{api.pods}/red", {"metadata": {"labels": {"team": "blue"}}})
        await api.patch(f"{api.pods}/blue", {"metadata": {"labels": {"team": "red"}}})
        assert await watch.named(3) == [("ADDED", "red"), ("DELETED", "red"), ("ADDED", "blue")]


async def test_a_watch_of_one_namespace_sees_nothing_of_others(api: Api) -> None:
    version = (await api.get(api.configmaps)).version
    other = api_client.unique("other")
    async with api.watch(api.configmaps, resourceVersion=version) as watch:
        await api.create("/api/v1/namespaces/default/configmaps", configmap(other))
        await api.create(api.configmaps, configmap("mine"))
        seen = await watch.named(1)
        await api.call("DELETE", f"/api/v1/namespaces/default/configmaps/{other}")
    assert seen in ([("ADDED", "mine")], [("ADDED", "kube-root-ca.crt")])


async def test_a_watch_ends_after_its_time(api: Api) -> None:
    version = (await api.get(api.pods)).version
    async with api.watch(api.pods, resourceVersion=version, timeoutSeconds=1) as watch:
        while (event := await watch.event()) is not None:
            assert event[0] == "BOOKMARK"


async def test_a_change_that_changes_nothing_is_not_seen(api: Api) -> None:
    created = await api.create(api.configmaps, configmap(n="1"))
    async with api.watch(api.configmaps, resourceVersion=created["metadata"]["resourceVersion"]) as watch:
        await api.patch(f"{api.configmaps}/settings", {"data": {"n": "1"}})
        await api.patch(f"{api.configmaps}/settings", {"data": {"n": "2"}})
        type_, obj = await watch.next()
    assert (type_, obj["data"]) == ("MODIFIED", {"n": "2"})
