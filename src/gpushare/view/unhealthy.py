"""GPUs that a ConfigMap lists as unhealthy, read as the extender reads them.

The annotation of a node says which of its GPUs are healthy; a node problem detector writes these ConfigMaps in
addition. A user who may not read them sees what the annotations say.
"""

from gpushare.core.annotations import node_gpus
from gpushare.core.facts import names, objects
from gpushare.view import snapshot
from gpushare.view.snapshot import Snapshot
from gpushare.view.source import Forbidden, NotFound, Source

PATH = f"/api/v1/namespaces/{names.UNHEALTHY_NAMESPACE}/configmaps"


class _ConfigMaps(objects.Struct):
    items: list[objects.ConfigMap] | None = None


def mark(cluster: Snapshot, source: Source) -> None:
    """Marks the listed GPUs as unhealthy in the ledger of a snapshot."""
    try:
        configmaps = snapshot.decode(source.get(PATH), _ConfigMaps, PATH).items or []
    except (Forbidden, NotFound):
        return
    listed = {one.metadata.name: node_gpus.unhealthy(one) for one in configmaps}
    for node in cluster.nodes:
        gpus = listed.get(f"{names.UNHEALTHY_PREFIX}{node.metadata.name}")
        facts = node_gpus.read(node, gpus, as_aliyun=node_gpus.contradicts(node)) if gpus else None
        if facts is not None:
            cluster.ledger.set_node(facts)
