"""GPUs that somebody has listed as unhealthy in a ConfigMap, as the extender reads them.

Most health is in the nodes' own annotations; these ConfigMaps are what a node problem detector writes. Whoever may not
read them sees what the nodes say. Called by `inspect` and `why`: else both would call a GPU free that nobody gets.
"""

from gpushare.core import api, codec, names
from gpushare.ctl import seen
from gpushare.ctl.snapshot import Snapshot
from gpushare.ctl.source import Forbidden, NotFound, Source

PATH = f"/api/v1/namespaces/{names.UNHEALTHY_NAMESPACE}/configmaps"


class _ConfigMaps(api.Struct):
    items: list[api.ConfigMap] | None = None


def mark(world: Snapshot, source: Source) -> None:
    """Tells the ledger of a snapshot which GPUs are listed."""
    try:
        found = seen.decode(source.get(PATH), _ConfigMaps, PATH).items or []
    except (Forbidden, NotFound):
        return
    listed = {one.metadata.name: codec.sick_gpus(one) for one in found}
    for node in world.nodes:
        gpus = listed.get(f"{names.UNHEALTHY_PREFIX}{node.metadata.name}")
        facts = codec.node_facts(node, gpus, as_original=codec.contradicts(node)) if gpus else None
        if facts is not None:
            world.ledger.set_node(facts)
