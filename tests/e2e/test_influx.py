"""InfluxDB 1.6 of Debian, and `gpushare node` on two nodes: KETI's own queries find what the GPUs do.

The tests are the life of one database, from top to bottom: it is filled, away for 30 seconds, and gone.
"""

import asyncio
import itertools
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.harness import influx, shipped
from tests.e2e.harness.cluster import Cluster, until
from tests.e2e.harness.figures import Figures
from tests.e2e.harness.influx import PASSWORD, Influx
from tests.e2e.harness.processes import Process
from tests.node import world
from tests.support import wait
from tests.support.nvml import build, state

NODES = ("influx-a", "influx-b")
FIRST_PORT = 12400
MIB = state.MIB
AWAY_SECONDS = 30
TICK = os.sysconf("SC_CLK_TCK")
CONFIG_MAP: dict[str, Any] = {
    "apiVersion": "v1", "kind": "ConfigMap",
    "metadata": {"name": "gpu-metric-collector-configmap", "namespace": "gpu"},
}  # fmt: skip
# What docs/influxdb.md tells to apply.
RIGHT = {
    "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
    "metadata": {"name": "gpushare-node-interval", "namespace": "gpu"},
    "rules": [{
        "apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"],
        "resourceNames": ["gpu-metric-collector-configmap"],
    }],
}  # fmt: skip
BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
    "metadata": {"name": "gpushare-node-interval", "namespace": "gpu"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "gpushare-node-interval"},
    "subjects": [{"kind": "ServiceAccount", "name": "gpushare-node", "namespace": "kube-system"}],
}  # fmt: skip
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gpu"}}


class Machine:
    """A node with two GPUs, and `gpushare node` on it."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.name, self.port = NODES[number], FIRST_PORT + number
        self.cards = (2 * number, 2 * number + 1)
        self._cluster = cluster
        self._folder = cluster.work / self.name
        self._folder.mkdir(parents=True)
        self._mock = state.Mock(self._folder / "gpus")
        self.show()
        self.process: Process | None = None

    @property
    def uuids(self) -> list[str]:
        return [state.uuid(card) for card in self.cards]

    def show(self, temperature: int = 50, power: int = 61_500) -> None:
        """The first GPU has two processes; the second does not tell its power."""
        first, second = self.cards
        processes = (state.process(4001, 1000, 30), state.process(4002, 500, 7))
        self._mock.show(
            state.using(first, 16276, *processes, temp=temperature, power=power, util="37 20"),
            state.using(second, 8192, power=None),
        )

    def lose_one(self) -> None:
        self._mock.show(state.using(self.cards[0], 16276))

    async def start(self, config: Path) -> None:
        environment = dict(os.environ) | {
            "LD_LIBRARY_PATH": str(build.cached().parent),
            state.VARIABLE: str(self._mock.path),
            "INFLUX_USER": influx.USER,
            "INFLUX_PASSWORD_FILE": str(influx.password_file(self._folder)),
        }
        self.process = self._cluster.processes.start(
            f"node-{self.name}", Path(sys.executable).parent / "gpushare", "node", "--kubeconfig", config,
            "--node-name", self.name, "--memory-unit", "MiB", "--pin", "direct", "--port", str(self.port),
            "--sample-seconds", "1", "--influx", influx.URL, "--influx-interval", "1", environment=environment,
        )  # fmt: skip
        await until(self.name, lambda: self._cluster.answers(f"http://127.0.0.1:{self.port}/readyz"), self.process)

    async def points(self, outcome: str) -> int:
        return await self._metric(rf'gpushare_influx_points_total\{{outcome="{outcome}"\}}')

    async def buffered(self) -> int:
        return await self._metric("gpushare_influx_buffered_points")

    async def _metric(self, pattern: str) -> int:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{self.port}/metrics") as response,
        ):
            found = re.search(rf"^{pattern} (\S+)$", await response.text(), re.MULTILINE)
        assert found, pattern
        return int(float(found[1]))

    def cpu_seconds(self) -> float:
        assert self.process is not None
        fields = Path(f"/proc/{self.process.popen.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def log(self) -> str:
        assert self.process is not None
        return self.process.log.read_text()


class Stage:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.influx = cluster, Influx(cluster)
        self.machines = [Machine(cluster, number) for number in range(len(NODES))]

    async def start(self) -> None:
        await self.cluster.apply(*shipped.rights("node-ds.yaml"), *(world.node(name) for name in NODES))
        await self.influx.start()
        await self.influx.make_user()
        config = await self.cluster.account_kubeconfig(shipped.NAMESPACE, "gpushare-node")
        await asyncio.gather(*(machine.start(config) for machine in self.machines))

    async def stop(self) -> None:
        for machine in self.machines:
            if machine.process is not None:
                await self.cluster.processes.end(machine.process)
        await self.influx.stop()
        await self.cluster.kubectl("delete", "node", "--ignore-not-found", *NODES)
        await self.cluster.kubectl("delete", "namespace", "gpu", "--ignore-not-found", "--wait=false")

    async def seconds(self, name: str) -> list[int]:
        """When this node has written, in order."""
        return [row[0] for row in await self.influx.rows(f"SELECT NodeName FROM multimetric WHERE node='{name}'")]

    async def counted(self, name: str) -> int:
        """All points of this node. Each has one of these fields."""
        fields = {"multimetric": "Count", "nodemetric": "Count", "gpumetric": "Index", "gpumap": "gpu_mps_pid"}
        queries = (f"SELECT count({field}) FROM {of} WHERE node='{name}'" for of, field in fields.items())
        return sum([row[1] for query in queries for row in await self.influx.rows(query)])


@pytest.fixture(scope="module")
def stage(cluster: Cluster) -> Iterator[Stage]:
    made = Stage(cluster)
    with asyncio.Runner() as runner:
        try:
            runner.run(made.start())
            yield made
        finally:
            runner.run(made.stop())


async def test_ketis_query_for_a_node_finds_its_columns(stage: Stage) -> None:
    for machine in stage.machines:
        query = f"SELECT last(*) FROM multimetric where NodeName='{machine.name}'"
        # CPU is the difference of two looks: the first point has none.
        (series,) = await wait.eventually_asked(partial(_whole, stage, query, 6), query, 20)
        _, *names = series["columns"]
        assert names == ["last_Count", "last_NodeCPU", "last_NodeMemory", "last_NodeName", "last_uuid"]
        row = series["values"][0]
        assert (row[1], row[4], row[5]) == (2, machine.name, f"[{' '.join(machine.uuids)}]")
        assert 0 <= row[2] <= 1000 * (os.cpu_count() or 1)
        assert row[3] > 100 * MIB


async def _whole(stage: Stage, query: str, columns: int) -> list[Mapping[str, Any]]:
    """The series, as soon as they have so many columns, and something in each: another node may have been quicker."""
    found = await stage.influx.select(query)
    return [one for one in found if len(one["columns"]) >= columns and None not in one["values"][0]]


async def test_ketis_query_for_a_gpu_finds_its_columns_and_numbers_are_numbers(stage: Stage) -> None:
    machine = stage.machines[1]
    (series,) = await stage.influx.select(f"SELECT last(*) FROM gpumetric where UUID='{machine.uuids[0]}'")
    assert series["columns"] == [
        "time", "last_GPUName", "last_Index", "last_Power", "last_memory(free)", "last_memory(total)",
        "last_memory(used)", "last_temperature", "last_utilization",
    ]  # fmt: skip
    total, used = 16276 * MIB, 1500 * MIB
    assert series["values"][0][1:] == ["Tesla T4", 0, 61_500, total - used - 300 * MIB, total, used, 50, 37]


async def test_what_a_gpu_does_not_tell_is_null_and_other_columns_stay_where_they_are(stage: Stage) -> None:
    (series,) = await stage.influx.select(f"SELECT last(*) FROM gpumetric where UUID='{stage.machines[0].uuids[1]}'")
    assert (series["columns"][3], series["values"][0][3]) == ("last_Power", None)
    assert (series["columns"][7], series["values"][0][7]) == ("last_temperature", 35)


async def test_processes_of_one_gpu_in_one_second_and_two_nodes_in_one_second_are_all_there(stage: Stage) -> None:
    async def common() -> set[int]:
        first, second = [set(await stage.seconds(name)) for name in NODES]
        return first & second

    both = await wait.eventually_asked(common, "both nodes have written in the same second", 20)
    second = min(both)
    rows = await stage.influx.rows(f"SELECT NodeName FROM multimetric WHERE time = {second}s")
    assert sorted(row[1] for row in rows) == list(NODES)
    uuid = stage.machines[0].uuids[0]
    rows = await stage.influx.rows(f"SELECT gpu_mps_pid, gpu_mps_memory, pid FROM gpumap WHERE UUID='{uuid}'")
    at = rows[0][0]
    assert [row for row in rows if row[0] == at] == [[at, 4001, 1000 * MIB, "4001"], [at, 4002, 500 * MIB, "4002"]]


async def test_a_change_of_a_gpu_is_in_the_database_within_two_intervals(stage: Stage) -> None:
    machine = stage.machines[0]
    query = f"SELECT temperature FROM gpumetric WHERE UUID='{machine.uuids[0]}' AND temperature = 77"
    machine.show(temperature=77)
    changed = time.time()
    rows = await wait.eventually_asked(lambda: stage.influx.rows(query), "the new temperature", 20)
    assert rows[0][0] - changed <= 2


async def test_a_server_that_is_away_for_half_a_minute_loses_nothing(stage: Stage, figures: Figures) -> None:
    begun = int(time.time())
    await stage.influx.stop()
    before = [machine.cpu_seconds() for machine in stage.machines]
    await asyncio.sleep(AWAY_SECONDS)
    spent = [machine.cpu_seconds() - was for machine, was in zip(stage.machines, before, strict=True)]
    waiting = [await machine.buffered() for machine in stage.machines]
    await stage.influx.start()
    back = int(time.time())
    for machine in stage.machines:

        async def caught_up(machine: Machine = machine) -> bool:
            times = await stage.seconds(machine.name)
            return bool(times) and times[-1] > back and await machine.buffered() == 0

        await wait.eventually_asked(caught_up, f"{machine.name} has written everything", 30)
        times = await stage.seconds(machine.name)
        gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert max(gaps) <= 2, "a second may be left out where two samples are more than a second apart"
        assert sum(1 for second in times if begun <= second < back) >= 0.9 * (back - begun)
        assert (await machine.points("dropped"), await machine.points("failed")) == (0, 0)
        assert await _same(stage, machine)
    cpu = [round(seconds * 1000 / AWAY_SECONDS, 1) for seconds in spent]
    figures.say("InfluxDB away for 30 s", f"points kept {waiting}, none lost; CPU of each node part {cpu} ms/s")


async def _same(stage: Stage, machine: Machine) -> bool:
    """What the node has counted as written is what the database has: asked until nothing was written in between."""
    for _ in range(20):
        said, there = await machine.points("written"), await stage.counted(machine.name)
        if said == await machine.points("written"):
            return said == there
    return False


async def test_ketis_config_map_changes_the_interval_of_running_nodes(stage: Stage) -> None:
    assert "ConfigMap" not in stage.machines[0].log(), "a missing right is not worth a word"
    stage_map = {**CONFIG_MAP, "data": {"metric-collecting-interval": "3"}}
    await stage.cluster.apply(NAMESPACE, RIGHT, BINDING, stage_map)
    config = await stage.cluster.account_kubeconfig(shipped.NAMESPACE, "gpushare-node")
    machine = stage.machines[1]
    assert machine.process is not None
    await stage.cluster.processes.end(machine.process)  # a right that was missing is looked for every 5 minutes
    await machine.start(config)

    async def every_three() -> bool:
        times = (await stage.seconds(machine.name))[-3:]
        return all(later - earlier == 3 for earlier, later in itertools.pairwise(times))

    await wait.eventually_asked(every_three, "points every 3 seconds", 30)
    await stage.cluster.apply({**CONFIG_MAP, "data": {"metric-collecting-interval": "often"}})
    await wait.eventually_asked(lambda: _says(machine, "the interval stays"), "a word about the bad value", 10)
    await stage.cluster.kubectl("delete", "configmap", "-n", "gpu", CONFIG_MAP["metadata"]["name"])
    await wait.eventually_asked(lambda: _says(machine, '"seconds": 1.0}'), "the interval of the option again", 10)


async def _says(machine: Machine, text: str) -> bool:
    return text in machine.log()


async def test_a_server_that_is_gone_for_good_costs_the_node_nothing(stage: Stage, figures: Figures) -> None:
    machine = stage.machines[0]
    busy, started = machine.cpu_seconds(), time.monotonic()
    await asyncio.sleep(6)
    with_server = (machine.cpu_seconds() - busy) / (time.monotonic() - started)
    await stage.influx.stop()
    busy, started = machine.cpu_seconds(), time.monotonic()
    await asyncio.sleep(6)
    without = (machine.cpu_seconds() - busy) / (time.monotonic() - started)
    figures.say("CPU of a node part that writes every second",
                f"{with_server * 1000:.1f} ms/s with InfluxDB, {without * 1000:.1f} ms/s without")  # fmt: skip
    assert without <= with_server * 1.5 + 0.02
    # Its other work goes on: a GPU that is gone is in the node's annotation.
    machine.lose_one()
    path = f"/api/v1/nodes/{machine.name}"

    async def unhealthy() -> bool:
        return '"ok":false' in (await stage.cluster.get(path))["metadata"]["annotations"]["gpushare.io/gpus"]

    await wait.eventually_asked(unhealthy, "the lost GPU is published", 30)
    assert machine.process is not None
    assert machine.process.running


def test_no_log_has_the_password_in_it(stage: Stage) -> None:
    for machine in stage.machines:
        assert PASSWORD not in machine.log()
        assert "InfluxDB does not answer, points are kept" in machine.log()
