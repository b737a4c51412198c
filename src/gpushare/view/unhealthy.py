"""GPUs that somebody has listed as unhealthy in a ConfigMap, as the extender reads them.

Most health is in the nodes' own annotations; these ConfigMaps are what a node problem detector writes. Whoever may not
read them sees what the nodes say.
"""

from gpushare.core.annotations import pod_gpus
from gpushare.core.facts import names, objects
from gpushare.view import snapshot
from gpushare.view.snapshot import Snapshot
from gpushare.view.source import Forbidden, NotFound, Source

PATH = f"/api/v1/namespaces/{names.UNHEALTHY_NAMESPACE}/configmaps"


class _ConfigMaps(objects.Struct):
    items: list[objects.ConfigMap] | None = None


def mark(world: Snapshot, source: Source) -> None:
    """Tells the ledger of a snapshot which GPUs are listed."""
    try:
        found = snapshot.decode(source.get(PATH), _ConfigMaps, PATH).items or []
    except (Forbidden, NotFound):
        return
    listed = {one.metadata.name: pod_gpus.sick_gpus(one) for one in found}
    for node in world.nodes:
        gpus = listed.get(f"{names.UNHEALTHY_PREFIX}{node.metadata.name}")
        facts = pod_gpus.node_facts(node, gpus, as_original=pod_gpus.contradicts(node)) if gpus else None
        if facts is not None:
            world.ledger.set_node(facts)
