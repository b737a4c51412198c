"""Whether every container sees the GPU it is counted on: its env, its pod's annotations and, on plugin nodes, kubelet.

kubelet is asked through its socket, as anybody on a node may ask it.
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
from gpushare.view.snapshot import Snapshot

Container = tuple[str, str, str]  # namespace, pod, name
Logs = Callable[[str, str, str], str]


class Told(msgspec.Struct, frozen=True):
    """The GPUs of one container, by uuid. `given`: those that kubelet gave it; None where the binding gives them."""

    container: Container
    env: frozenset[str]
    annotated: frozenset[str]
    given: frozenset[str] | None

    @property
    def ok(self) -> bool:
        return bool(self.env) and self.env == self.annotated and self.given in (None, self.env)


class Table(msgspec.Struct, frozen=True):
    """A plugin node: units by uuid, as its plugin counts them and as everybody else does."""

    node: str
    plugin: dict[str, int]
    annotated: dict[str, int]


def check(told: Collection[Told], tables: Iterable[Table]) -> Check:
    right = sum(one.ok for one in told)
    claim = f"env names its GPU: {right} of {len(told)}"
    wrong = [f"not so: {'/'.join(one.container)}" for one in told if not one.ok]
    wrong += [f"{table.node} counts otherwise" for table in tables if table.plugin != table.annotated]
    by_plugin = sum(one.given is not None for one in told)
    detail = f"{by_plugin} by the device plugin, {len(told) - by_plugin} by the binding"
    return Check(not wrong and bool(told), claim, wrong[0] if wrong else detail)


async def containers(seen: Snapshot, logs: Logs, nodes: Mapping[str, Node]) -> list[Told]:
    """All that have been given GPUs."""
    plugins = {name: node.plugin for name, node in nodes.items() if node.plugin is not None}
    given = {name: await _given(nodes[name], plugin) for name, plugin in plugins.items()}
    found = []
    for holding in seen.ledger.holdings():
        facts, pod = seen.ledger.facts(holding.node), holding.pod
        assert facts is not None
        uuids = {gpu.index: gpu.uuid for gpu in facts.gpus}
        for name, gpus in inspected.gpus_of(pod, facts).items():
            container = (pod.namespace, pod.name, name)
            kubelets = given[holding.node].get(container, frozenset()) if holding.node in given else None
            found.append(Told(container, _sees(logs, container), frozenset(uuids[i] for i in gpus), kubelets))
    return found


def tables(seen: Snapshot, nodes: Mapping[str, Node]) -> list[Table]:
    found = []
    for name, node in nodes.items():
        state = seen.ledger.node(name)
        if node.plugin is not None and state is not None and state.facts is not None:
            used = zip(state.facts.gpus, state.effective(), strict=True)
            found.append(Table(name, node.plugin.held(), {gpu.uuid: units for gpu, units in used if units}))
    return found


async def _given(node: Node, plugin: Plugin) -> dict[Container, frozenset[str]]:
    """What kubelet says: the GPUs are read from the ids of their units."""
    catalog = plugin.state.catalog
    try:
        listed = await podresources.ask(Path(node.config.kubelet) / paths.POD_RESOURCES)
    except NoAnswer:
        return {}
    return {
        (entry.namespace, entry.pod, entry.container): frozenset(
            entry.ids if entry.whole else catalog.reader(Ids.of(entry.ids)).all(catalog.totals)
        )
        for entry in listed
    }


def _sees(logs: Logs, container: Container) -> frozenset[str]:
    try:
        told = environment(logs(*container))
    except ApiError:
        return frozenset()  # it has not been started
    return frozenset(told.get(names.VISIBLE_DEVICES, "").split(",")) - {""}


def environment(log: str) -> dict[str, str]:
    """What a simulated container was told: its log is NAME=value lines."""
    return dict(line.split("=", 1) for line in log.splitlines())
