"""Everything that a policy asks for, in the order of its status: what is needed first stands first.

Nobody waits for this order. All of it is applied at once, and pods wait on their node for what they need.
"""

from typing import Final

from gpushare.operator.desired import admission, dashboard, gpunodes, monitoring, runtime_class, scheduler, unserved
from gpushare.operator.desired.component import Build, Cluster, Component, Manifests
from gpushare.operator.desired.on_nodes import driver, finder, mps, node_part, toolkit, validator
from gpushare.operator.desired.policy import Spec

BUILDS: Final[tuple[Build, ...]] = (
    runtime_class.build,
    gpunodes.build,
    driver.build,
    toolkit.build,
    finder.build,
    validator.build,
    node_part.build,
    validator.node_status_exporter,
    mps.build,
    scheduler.build,
    admission.build,
    monitoring.build,
    dashboard.build,
    unserved.build,
)


def desired(spec: Spec, cluster: Cluster, manifests: Manifests) -> tuple[Component, ...]:
    """`manifests`: how the documents of a file of deploy/ are made; each call makes new ones."""
    found: list[Component] = []
    for build in BUILDS:
        made = build(spec, cluster, manifests)
        found.extend([made] if isinstance(made, Component) else made)
    return tuple(found)
