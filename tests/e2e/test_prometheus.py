"""What Prometheus makes of our metrics: a real one scrapes nodes and extender as deploy/monitoring says. Every alert
and every panel of every board is tried. GPUs are those of the stand-in for NVIDIA's library.
"""

import asyncio
import json
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.harness import alert_cases, binaries, prometheus, sampled_nodes, shipped
from tests.e2e.harness.cluster import say
from tests.e2e.harness.figures import Figures
from tests.e2e.harness.prometheus import Prometheus, promtool
from tests.e2e.harness.sampled_nodes import Cgroups, SampledNode
from tests.e2e.harness.world import World
from tests.support.nvml import state
from tests.support.wait import eventually_asked
from tools.monitoring import boards, rules

MIB = 1 << 20
PATIENCE = 45.0  # seconds
A, B = "sampled-a", "sampled-b"
GPUS: dict[str, dict[int, int]] = {A: {0: 16276, 1: 11178}, B: {2: 8000}}  # sizes by number in the stand-in
TEN = {f"small-{i}": 1500 for i in range(10)}  # share GPU 0
THREE = {"serve": 4000, "train": 4000, "notebook": 3000}  # share GPU 1
WAITS = 1400  # MiB; so many are free, but in pieces of 1276 and 178
READER = "gpushare-metrics"
# Of NVIDIA's board 12239. The last one needs DCGM itself, and is not expected.
BOARD_12239 = (
    "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_FB_USED",
)  # fmt: skip
NEEDS_DCGM = "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"
CHOSEN = {"$node": ".*", "$namespace": ".*", "$__range": "10m", "$__rate_interval": "20s"}  # as in Grafana: all
PICTURE = "usage.json"  # with the logs; tools/usage_picture.py draws it


@pytest.fixture(scope="module", autouse=True)
def _fetched() -> None:
    if binaries.MONITORING in binaries.missing():
        say(f"making {binaries.MONITORING}")
        binaries.ensure(binaries.MONITORING)


def test_every_alert_fires_when_it_should_and_only_then(tmp_path: Path, figures: Figures) -> None:
    file = prometheus.FOLDER / "rules.yaml"
    assert f"{len(rules.ALL)} rules found" in promtool("check", "rules", file)
    (tmp_path / "cases.yaml").write_text(alert_cases.written(str(file)))
    assert "SUCCESS" in promtool("test", "rules", tmp_path / "cases.yaml")
    fires, silent = len(alert_cases.FIRES), len(alert_cases.SILENT)
    figures.say("promtool", f"{len(rules.ALL)} alerts: {fires} cases in which they fire, {silent} in which they do not")


async def test_prometheus_scrapes_nodes_and_extender_and_every_board_has_its_series(
    world: World, figures: Figures, tmp_path: Path
) -> None:
    async with (
        sampled_nodes.applied(world.cluster, *shipped.rights("view-rbac.yaml"), *_reader()),
        world.cluster.extender(shipped.metrics_word()),
        world.cluster.scheduler(),
        world.kubelets(),
        sampled_nodes.started(world, tmp_path, GPUS) as nodes,
    ):
        token = await _token(world)
        with sampled_nodes.cgroups() as cgroups:
            settings = {"scrape_interval": "1s", "evaluation_interval": "1s"}
            targets = {node.target: _node_pod(node) for node in nodes.values()}
            targets[shipped.EXTENDER_METRICS] = EXTENDER_POD
            config = prometheus.configuration(targets, token, **settings)
            async with prometheus.running(world.cluster, config, tmp_path) as asked:
                began = time.time()
                await _check_targets(asked, len(targets))  # scraped before anything happens
                uids = await _place(world)
                await _use(nodes, uids, cgroups)
                await _check_pages(nodes[A], token.read_text())
                await _check_sums(asked, nodes[A])
                tried = await _check_panels(asked)
                await _check_board_12239(asked)
                await _check_alerts(asked)
                (world.cluster.logs / PICTURE).write_text(json.dumps(await _for_picture(asked, began)))
    figures.say(
        "Prometheus of Debian", f"{len(targets)} targets scraped over HTTPS; {tried} queries of {len(boards.ALL)} "
        f"boards and {len(BOARD_12239)} of 6 names of board 12239 have series; 10 pods on a GPU are counted once",
    )  # fmt: skip


# The cluster


EXTENDER_POD = {
    "label_app": "gpushare", "label_component": shipped.EXTENDER, "container_port_name": "metrics", "phase": "Running",
}  # fmt: skip


def _node_pod(node: SampledNode) -> dict[str, str]:
    return {
        "label_app": "gpushare", "label_component": "gpushare-node", "container_port_name": "metrics",
        "phase": "Running", "node_name": node.name, "name": f"gpushare-node-{node.name}",
    }  # fmt: skip


def _reader() -> Iterator[dict[str, Any]]:
    """The account of podmonitor.yaml."""
    return (d for d in shipped.documents("monitoring/podmonitor.yaml") if d["kind"] in shipped.RIGHTS)


async def _token(world: World) -> Path:
    path = f"/api/v1/namespaces/{shipped.NAMESPACE}/serviceaccounts/{READER}/token"
    answer = await world.cluster.call("POST", path, {"spec": {"expirationSeconds": 3600}})
    file = world.cluster.work / "reader.token"
    file.write_text(answer["status"]["token"])
    return file


async def _place(world: World) -> dict[str, str]:
    """One pod has a GPU of its own, three share one, ten another; one waits. Their uids by name."""
    on = {name: {"kubernetes.io/hostname": name} for name in GPUS}
    whole = {"name": "whole", "containers": {"main": {"count": 1}}, "direct": True, "selector": on[B]}
    shares = [
        {"name": name, "containers": {"main": size}, "direct": True, "selector": on[A]}
        for name, size in {**THREE, **TEN}.items()
    ]
    for pods in ([whole, *shares[:3]], shares[3:]):  # the small ones find only GPU 0 left
        await world.watch.until_bound(*await world.make_pods(*pods), seconds=PATIENCE)
    (waits,) = await world.make_pods({"name": "waits", "containers": {"main": WAITS}, "direct": True})
    await world.watch.until_refused(waits)
    return {name: pod["metadata"]["uid"] for name, pod in world.watch.pods.items()}


async def _use(nodes: Mapping[str, SampledNode], uids: Mapping[str, str], cgroups: Cgroups) -> None:
    """What the containers use changes; in the end small-0 and train use more than they asked for."""
    pids = {name: cgroups.process(uids[name]) for name in (*TEN, *THREE, "whole")}
    stray = state.process(cgroups.process(), 300)
    nodes[B].show({2: [state.process(pids["whole"], 7000, 90)]}, util="90 50", power=60_000)
    small = [state.process(pids[name], 1600 if name == "small-0" else 1400, 5) for name in TEN]
    nodes[A].mock.xid(31, 0)
    for step in range(10):
        used = {"serve": 2500 + 60 * step, "train": min(900 * step, 4500), "notebook": 900 if step == 4 else 350}
        three = [state.process(pids[name], memory, 20) for name, memory in used.items()]
        nodes[A].show({0: [*small, stray], 1: three}, util=f"{50 + step} 30", temp=60 + step, power=50_000 + 500 * step)
        await asyncio.sleep(1.5)


# What is checked


async def _check_targets(asked: Prometheus, count: int) -> None:
    """Each target is of exactly one job, and answers."""

    async def up() -> bool:
        found = await asked.targets()
        return len(found) == count and all(target["health"] == "up" for target in found)

    try:
        await eventually_asked(up, "all targets are up", PATIENCE)
    except AssertionError:
        problems = [(target["labels"], target["lastError"]) for target in await asked.targets()]
        raise AssertionError(problems) from None


async def _check_pages(node: SampledNode, token: str) -> None:
    """Without a token nobody reads them. promtool finds nothing to complain about in them but for names that are
    NVIDIA's."""
    pages = []
    async with aiohttp.ClientSession() as session:
        for target in (node.target, shipped.EXTENDER_METRICS):
            async with session.get(f"https://{target}/metrics", ssl=False) as response:
                assert response.status == 401
            bearer = {"Authorization": f"Bearer {token}"}
            async with session.get(f"https://{target}/metrics", ssl=False, headers=bearer) as response:
                assert response.status == 200
                pages.append(await response.text())
    of_node, of_extender = pages
    assert "gpushare_waiting_pods" in of_extender
    for page in pages:
        assert "gpushare_" in page
        promtool("check", "metrics", given="".join(line for line in page.splitlines(True) if "DCGM_FI_" not in line))
    names = set(re.findall(r"^# TYPE (DCGM_\S+)", of_node, re.MULTILINE))
    assert {*BOARD_12239} < names


async def _check_sums(asked: Prometheus, node: SampledNode) -> None:
    """However many pods share a GPU, it is counted once, and the figures are those of the driver."""
    small = 1600 + 9 * 1400 + 300
    three = 2500 + 60 * 9 + 4500 + 350
    here = f'{{Hostname="{node.name}"}}'
    wanted = {
        "sum(DCGM_FI_DEV_FB_USED)": small + three + 7000,
        f'sum(DCGM_FI_DEV_FB_USED{{Hostname="{node.name}", gpu="0"}})': small,
        f"count(DCGM_FI_DEV_FB_USED{here})": 2,
        f'sum(gpushare_gpu_shares{{node="{node.name}", gpu="0"}})': 10,
        f'sum(gpushare_container_memory_used_bytes{{node="{node.name}", gpu="0"}}) / {MIB}': small - 300,
        f'gpushare_gpu_memory_unattributed_bytes{{node="{node.name}", gpu="0"}} / {MIB}': 300,
        f'gpushare_gpu_memory_granted_bytes{{node="{node.name}", gpu="0"}} / {MIB}': sum(TEN.values()),
        'count(DCGM_FI_DEV_FB_USED{pod="whole", container="main"})': 1,
    }

    async def true() -> bool:
        return {text: await asked.number(text) for text in wanted} == wanted

    try:
        await eventually_asked(true, "the sums are right", PATIENCE)
    except AssertionError:
        assert {text: await asked.number(text) for text in wanted} == wanted
    for labelled in ("DCGM_FI_DEV_FB_USED", "gpushare_gpu_shares"):
        assert await asked.query(f'{labelled}{{pod!="", pod!="whole"}}') == [], "it seems to be of the exporter's pod"


async def _check_panels(asked: Prometheus) -> int:
    """Every query of every board has series."""
    queries = [
        (f"{board.title}, {panel.title}", _chosen(query.expression))
        for board in boards.ALL
        for panel in board.panels
        for query in panel.queries
    ]
    patience_ends = time.monotonic() + PATIENCE
    empty = queries
    while empty := [(title, text) for title, text in empty if not await asked.query(text)]:
        assert time.monotonic() < patience_ends, "\n".join(f"{title}: {text}" for title, text in empty)
        await asyncio.sleep(0.5)
    return len(queries)


def _chosen(expression: str) -> str:
    for variable, value in CHOSEN.items():
        expression = expression.replace(variable, value)
    return expression


async def _check_board_12239(asked: Prometheus) -> None:
    for name in BOARD_12239:
        assert len(await asked.query(f'{name}{{Hostname=~".*", gpu=~".*"}}')) == 3, name
    assert await asked.query(NEEDS_DCGM) == []


async def _check_alerts(asked: Prometheus) -> None:
    """Prometheus evaluates the shipped rules on these series: two containers use too much."""
    found = await asked.query('ALERTS{alertname="OverUse"}')
    assert {series["metric"]["pod"] for series in found} == {"small-0", "train"}
    assert await asked.query('ALERTS{alertname="ExtenderDown"}') == []


async def _for_picture(asked: Prometheus, began: float) -> dict[str, prometheus.Series]:
    on = f'{{node="{A}", gpu="1"}}'
    metrics = {name: f"gpushare_container_memory_{name}_bytes{on}" for name in ("granted", "used")}
    ranges = {name: await asked.query_range(text, began, time.time(), 1) for name, text in metrics.items()}
    return {**ranges, "peak": await asked.query(f"max_over_time({metrics['used']}[10m])")}
