"""Checks that every container sees the GPU it is charged on: in its env, its pod's annotations and, on plugin nodes,
kubelet's list of devices, read from kubelet's socket.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

import msgspec

from gpushare.core.explain import inspected
from gpushare.core.facts import names
from gpushare.demo.checks import Check
from gpushare.devcluster.apiserver.status import ApiError
from gpushare.kubelet import paths, podresources
from gpushare.kubelet.podresources import NoAnswer
from gpushare.kubelet.unit_ids import Ids
from gpushare.node.app import Node
from gpushare.node.deviceplugin.plugin import Plugin
from gpushare.node.part import Part
from gpushare.view import sold
from gpushare.view.snapshot import Snapshot

Container = tuple[str, str, str]  # namespace, pod, name
Logs = Callable[[str, str, str], str]


class ContainerGpus(msgspec.Struct, frozen=True):
    """The GPUs of one container, by uuid, from three sources. `granted`: by kubelet; None on directly pinned nodes."""

    container: Container
    env: frozenset[str]
    annotated: frozenset[str]
    granted: frozenset[str] | None

    @property
    def ok(self) -> bool:
        return bool(self.env) and self.env == self.annotated and self.granted in (None, self.env)


class Table(msgspec.Struct, frozen=True):
    """Units by uuid on a plugin node: in the plugin's table, and by the pods' annotations."""

    node: str
    plugin: dict[str, int]
    annotated: dict[str, int]


def check(all_gpus: Collection[ContainerGpus], tables: Iterable[Table]) -> Check:
    right = sum(one.ok for one in all_gpus)
    claim = f"env names its GPU: {right} of {len(all_gpus)}"
    wrong = [f"wrong: {'/'.join(one.container)}" for one in all_gpus if not one.ok]
    wrong += [f"{table.node}: plugin and annotations differ" for table in tables if table.plugin != table.annotated]
    by_plugin = sum(one.granted is not None for one in all_gpus)
    detail = f"{by_plugin} by the device plugin, {len(all_gpus) - by_plugin} by the binding"
    return Check(not wrong and bool(all_gpus), claim, wrong[0] if wrong else detail)


def check_sold(snapshot: Snapshot, logs: Logs) -> Check:
    """Each pod that asks by count sees GPUs of its node, and no more is given out than there is."""
    uses = sold.uses(snapshot)
    used, total = sum(use.used for use in uses), sum(use.total for use in uses)
    pods = [(use.node, buyer.pod) for use in uses for buyer in use.buyers]
    wrong = [f"over-committed: {use.node}" for use in uses if use.used > use.total]
    for node, pod in pods:
        facts = snapshot.ledger.facts(node)
        uuids = {gpu.uuid for gpu in facts.gpus} if facts is not None else set()
        for container in pod.spec.containers or ():
            seen = _visible(logs, (pod.metadata.namespace, pod.metadata.name, container.name))
            wrong += [] if seen and seen <= uuids else [f"wrong: {pod.metadata.name}/{container.name}"]
    wrong += [] if pods else ["nobody has any"]
    right = f"{', '.join(sorted({pod.metadata.name for _, pod in pods}))}: env names a GPU of its node"
    return Check(not wrong, f"sold by count: {used} of {total}", wrong[0] if wrong else right)


async def containers(snapshot: Snapshot, logs: Logs, nodes: Mapping[str, Part]) -> list[ContainerGpus]:
    """Of all containers that have GPUs."""
    sharing = {name: node for name, node in nodes.items() if isinstance(node, Node)}
    granted = {name: await _granted(node, node.plugin) for name, node in sharing.items() if node.plugin is not None}
    all_gpus = []
    for holding in snapshot.ledger.holdings():
        facts, pod = snapshot.ledger.facts(holding.node), holding.pod
        assert facts is not None
        uuids = {gpu.index: gpu.uuid for gpu in facts.gpus}
        for name, gpus in inspected.gpus_of(pod, facts).items():
            container = (pod.namespace, pod.name, name)
            kubelets = granted[holding.node].get(container, frozenset()) if holding.node in granted else None
            annotated = frozenset(uuids[i] for i in gpus)
            all_gpus.append(ContainerGpus(container, _visible(logs, container), annotated, kubelets))
    return all_gpus


def tables(snapshot: Snapshot, nodes: Mapping[str, Part]) -> list[Table]:
    result = []
    for name, node in nodes.items():
        state = snapshot.ledger.node(name)
        if isinstance(node, Node) and node.plugin is not None and state is not None and state.facts is not None:
            used = zip(state.facts.gpus, state.effective().units, strict=True)
            result.append(Table(name, node.plugin.held(), {gpu.uuid: units for gpu, units in used if units}))
    return result


async def _granted(node: Node, plugin: Plugin) -> dict[Container, frozenset[str]]:
    """By kubelet's list. The id of a unit names its GPU."""
    catalog = plugin.state.catalog
    try:
        listed = await podresources.ask(Path(node.config.kubelet) / paths.POD_RESOURCES)
    except NoAnswer:
        return {}
    return {
        (entry.namespace, entry.pod, entry.container): frozenset(
            entry.ids if entry.kind.exclusive else catalog.reader(Ids.of(entry.ids)).all(catalog.totals)
        )
        for entry in listed
    }


def _visible(logs: Logs, container: Container) -> frozenset[str]:
    try:
        env = environment(logs(*container))
    except ApiError:
        return frozenset()  # it has not been started
    return frozenset(env.get(names.VISIBLE_DEVICES, "").split(",")) - {""}


def environment(log: str) -> dict[str, str]:
    """The env of a simulated container: its log is NAME=value lines."""
    return dict(line.split("=", 1) for line in log.splitlines())
