"""What `kubectl get` shows: lengths of time, cells, and tables over HTTP. `tests/e2e/test_kubectl` compares them with a
real server's, word for word."""

from typing import Any

import pytest

from gpushare.devcluster import times
from gpushare.devcluster.apiserver.kinds import table
from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.devcluster.apiserver.tables import printing
from tests.contracts.api.pod_states import STATES
from tests.support.api_client import Api, Object, configmap, pod

TABLE = (
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
)
NOW = times.seconds("2026-01-02T03:04:05Z")
MINUTE, HOUR, DAY, YEAR = 60, 3600, 86400, 365 * 86400


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0.9, "0s"),
        (119, "119s"),
        (2 * MINUTE, "2m"),
        (9 * MINUTE + 59, "9m59s"),
        (10 * MINUTE + 30, "10m"),
        (3 * HOUR - 1, "179m"),
        (3 * HOUR, "3h"),
        (7 * HOUR + 59 * MINUTE, "7h59m"),
        (8 * HOUR + MINUTE, "8h"),
        (2 * DAY - 1, "47h"),
        (2 * DAY + HOUR, "2d1h"),
        (8 * DAY + HOUR, "8d"),
        (2 * YEAR - 1, "729d"),
        (2 * YEAR + 3 * DAY, "2y3d"),
        (9 * YEAR, "9y"),
    ],
)
def test_a_length_of_time_has_one_or_two_units(seconds: float, shown: str) -> None:
    assert times.length(seconds) == shown


def test_a_time_is_written_and_read_as_kubernetes_does() -> None:
    assert times.timestamp(NOW) == "2026-01-02T03:04:05Z"
    assert times.since(None, NOW) == "<unknown>"
    assert times.since("2026-01-02T03:03:55Z", NOW) == "10s"
    assert times.since("2026-01-02T03:03:55.250000Z", NOW) == "9s", "events have microseconds"


def cells(resource: str, obj: Object) -> dict[str, Any]:
    shown = printing.table(table.BY_RESOURCE[resource], [{"metadata": {"name": "x"}} | obj], NOW, metadata={})
    return dict(zip([c["name"] for c in shown["columnDefinitions"]], shown["rows"][0]["cells"], strict=True))


@pytest.mark.parametrize(
    ("resource", "obj", "expected"),
    [
        ("nodes", {}, {"Status": "Unknown", "Roles": "<none>", "Internal-IP": "<none>", "OS-Image": "<unknown>"}),
        ("nodes", {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, {"Status": "NotReady"}),
        ("secrets", {"data": {"a": "MQ=="}}, {"Name": "x", "Type": "Opaque", "Data": 1, "Age": "<unknown>"}),
        ("configmaps", {"data": {"a": "1"}, "binaryData": {"b": ""}}, {"Name": "x", "Data": 2, "Age": "<unknown>"}),
        ("namespaces", {"status": {"phase": "Active"}}, {"Status": "Active"}),
        (
            "jobs.batch",
            {"spec": {"completions": 3}, "status": {"startTime": "2026-01-02T03:04:00Z", "succeeded": 1}},
            {"Status": "Running", "Completions": "1/3", "Duration": "5s"},
        ),
        ("jobs.batch", {"spec": {"parallelism": 1}}, {"Completions": "0/1", "Duration": ""}),
        ("jobs.batch", {"spec": {"parallelism": 3}}, {"Completions": "0/1 of 3"}),
        (
            "jobs.batch",
            {
                "spec": {"completions": 1},
                "status": {
                    "startTime": "2026-01-02T03:04:00Z",
                    "completionTime": "2026-01-02T03:04:02Z",
                    "conditions": [{"type": "Failed", "status": "True"}],
                },
            },
            {"Status": "Failed", "Duration": "2s"},
        ),
        ("jobs.batch", {"metadata": {"name": "x", "deletionTimestamp": "now"}, "spec": {}}, {"Status": "Terminating"}),
        (
            "deployments.apps",
            {
                "spec": {"replicas": 3, "selector": {"matchLabels": {"b": "2", "a": "1"}}},
                "status": {"readyReplicas": 1, "updatedReplicas": 2},
            },
            {"Ready": "1/3", "Up-to-date": 2, "Available": 0, "Selector": "a=1,b=2", "Images": ""},
        ),
        (
            "events",
            {
                "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec.containers{main}"},
                "source": {"component": "kubelet", "host": "gpu-a"},
                "firstTimestamp": "2026-01-02T03:03:05Z",
                "lastTimestamp": "2026-01-02T03:04:00Z",
                "message": " said \n",
                "count": 4,
            },
            {"Last Seen": "5s", "First Seen": "60s", "Object": "pod/p", "Source": "kubelet, gpu-a", "Message": "said"}
            | {"Count": 4, "Subobject": "spec.containers{main}"},
        ),
        (
            "events",
            {"involvedObject": {"kind": "Node"}, "eventTime": "2026-01-02T03:04:03Z", "reportingComponent": "c"},
            {"Last Seen": "2s", "First Seen": "2s", "Object": "node", "Source": "c", "Count": 1},
        ),
        (
            "events",
            {"series": {"count": 7, "lastObservedTime": "2026-01-02T03:04:04Z"}, "lastTimestamp": None},
            {"Last Seen": "1s", "First Seen": "<unknown>", "Count": 7},
        ),
        ("pods", {"status": {"phase": "Pending"}}, {"Ready": "0/0", "Status": "Pending", "IP": "<none>"}),
        (
            "pods",
            {"metadata": {"name": "x", "deletionTimestamp": "now"}, "status": {"phase": "Running"}},
            {"Status": "Terminating"},
        ),
        (
            "pods",
            {"metadata": {"name": "x", "deletionTimestamp": "now"}, "status": {"phase": "Succeeded"}},
            {"Status": "Succeeded"},
        ),
        (
            "pods",
            {
                "spec": {"readinessGates": [{"conditionType": "a"}, {"conditionType": "b"}]},
                "status": {"conditions": [{"type": "a", "status": "True"}], "nominatedNodeName": "n"},
            },
            {"Readiness Gates": "1/2", "Nominated Node": "n"},
        ),
        ("pods", {"status": {"containerStatuses": ["nonsense"]}}, {"Name": "x", "Ready": "<invalid>"}),
    ],
)  # fmt: skip
def test_cells(resource: str, obj: Object, expected: dict[str, Any]) -> None:
    assert cells(resource, obj).items() >= expected.items()


@pytest.mark.parametrize("name", STATES)
def test_the_state_of_a_pod_in_one_word(name: str) -> None:
    more, status, ready, word = STATES[name]
    spec = {"containers": [{"name": "main"}]} | more
    gated = [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}] if name == "gated" else []
    found = cells("pods", {"spec": spec, "status": {"phase": "Pending", "conditions": gated} | status})
    assert (found["Ready"], found["Status"]) == (ready, word)


def test_every_kind_has_a_table() -> None:
    for kind in table.KINDS:
        assert "Name" in cells(kind.resource, {})


async def ask(api: Api, path: str, **query: str | int) -> Object:
    async with api.session.get(api.url + path, headers={"Accept": TABLE}, params=query) as response:
        assert (response.status, response.content_type) == (200, "application/json")
        found: Object = await response.json()
    assert (found["kind"], found["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    return found


async def test_a_list_can_be_a_table_with_metadata_for_each_row(api: Api) -> None:
    for name in "ab":
        await api.create(api.pods, pod(name))
    shown = await ask(api, api.pods)
    columns = [(column["name"], column["priority"]) for column in shown["columnDefinitions"]]
    assert columns[:6] == [("Name", 0), ("Ready", 0), ("Status", 0), ("Restarts", 0), ("Age", 0), ("IP", 1)]
    assert [row["cells"][:4] for row in shown["rows"]] == [["a", "0/1", "Pending", "0"], ["b", "0/1", "Pending", "0"]]
    carried = shown["rows"][0]["object"]
    assert (carried["kind"], carried["metadata"]["name"], "spec" in carried) == ("PartialObjectMetadata", "a", False)
    assert shown["metadata"]["resourceVersion"] == (await api.get(api.pods)).version


async def test_how_much_of_the_object_comes_along_can_be_said(api: Api) -> None:
    await api.create(api.pods, pod())
    whole = (await ask(api, api.pods, includeObject="Object"))["rows"][0]["object"]
    assert (whole["kind"], whole["apiVersion"], "spec" in whole) == ("Pod", "v1", True)
    assert "object" not in (await ask(api, api.pods, includeObject="None"))["rows"][0]


async def test_tables_have_pages_and_selectors_too(api: Api) -> None:
    for i in range(5):
        await api.create(api.configmaps, configmap(f"c{i}"))
    first = await ask(api, api.configmaps, limit=2)
    rest = await ask(api, api.configmaps, limit=9, **{"continue": first["metadata"]["continue"]})
    assert first["metadata"]["remainingItemCount"] == 3
    assert [row["cells"][0] for row in first["rows"] + rest["rows"]] == ["c0", "c1", "c2", "c3", "c4"]
    one = await ask(api, api.configmaps, fieldSelector="metadata.name=c3")
    assert [row["cells"][:2] for row in one["rows"]] == [["c3", 0]]


async def test_one_object_is_a_table_of_one_row(api: Api) -> None:
    await api.create(api.pods, pod())
    shown = await ask(api, f"{api.pods}/train")
    assert [row["cells"][0] for row in shown["rows"]] == ["train"]


async def test_a_watch_of_tables_names_the_columns_once(server: ApiServer, api: Api) -> None:
    api.session.headers["Accept"] = TABLE
    version = (await api.get(api.pods)).version
    async with api.watch(api.pods, resourceVersion=version) as watch:
        for name in "ab":
            await api.create(api.pods, pod(name))
        await api.call("DELETE", f"{api.pods}/a")
        seen = [await watch.next() for _ in range(4)]
    assert [type_ for type_, _ in seen] == ["ADDED", "ADDED", "MODIFIED", "DELETED"]
    assert [table["rows"][0]["cells"][0] for _, table in seen] == ["a", "b", "a", "a"]
    assert [bool(table["columnDefinitions"]) for _, table in seen] == [True, False, False, False]


async def test_who_asks_for_plain_json_gets_it(api: Api) -> None:
    await api.create(api.pods, pod())
    for accept in ("application/json", "*/*", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"):
        async with api.session.get(api.url + api.pods, headers={"Accept": accept}) as response:
            assert (await response.json())["kind"] == "PodList"


async def test_an_error_is_a_status_also_for_who_wants_tables(api: Api) -> None:
    async with api.session.get(f"{api.url}{api.pods}/none", headers={"Accept": TABLE}) as response:
        assert (response.status, (await response.json())["kind"]) == (404, "Status")


async def test_a_status_full_of_nonsense_ends_no_list_and_no_watch(server: ApiServer, api: Api) -> None:
    server.load([{"kind": "Node", "metadata": {"name": "odd"}, "status": {"conditions": "x", "addresses": [5]}}])
    assert (await ask(api, "/api/v1/nodes"))["rows"][0]["cells"][:2] == ["odd", "<invalid>"]
    api.session.headers["Accept"] = TABLE
    async with api.watch("/api/v1/nodes") as watch:
        assert (await watch.next())[1]["rows"][0]["cells"][0] == "odd"


async def test_a_gpunode_is_made_without_a_status_and_shown_as_the_row_it_says(api: Api) -> None:
    path, summary = "/apis/gpushare.io/v1alpha1/gpunodes", {"gpus": 2, "model": "T4", "used": "8 GiB (25%)"}
    made = await api.create(path, {"metadata": {"name": "gpu-a"}, "status": {"driver": "forged"}})
    assert "status" not in made
    written = {"status": {"summary": summary, "sampledAt": "2026-01-02T03:04:05Z"}, "metadata": {"labels": {"a": "b"}}}
    kept = (await api.patch(f"{path}/gpu-a/status", written)).body
    assert (kept["apiVersion"], kept["status"]["summary"]) == ("gpushare.io/v1alpha1", summary)
    assert "labels" not in kept["metadata"]
    around = (await api.patch(f"{path}/gpu-a", {"status": None, "metadata": {"labels": {"a": "b"}}})).body
    assert (around["status"], around["metadata"]["labels"]) == (kept["status"], {"a": "b"})
    assert (await api.patch(f"{path}/gpu-a/status", {"status": {"gpus": "many"}})).code == 400
    (row,) = printing.table(table.BY_KIND["GPUNode"], [around], NOW + 5, metadata={})["rows"]
    assert row["cells"][:5] == ["gpu-a", 2, "T4", None, "8 GiB (25%)"]
    assert row["cells"][9] == "5s"
