"""NVIDIA's driver container. Off unless somebody asks for it: the driver is on the nodes already, and checked."""

from gpushare.operator.desired import common, images
from gpushare.operator.desired.component import Cluster, Component, Manifests
from gpushare.operator.desired.policy import Image, Spec

NAME = "driver"
FILE = "operator/driver.yaml"
# A driver container is made for one operating system, and its tag names it.
NO_SYSTEM = (
    'driver.version is "{version}", and has to name the driver and the operating system of the nodes: such as '
    "595.91.07-ubuntu24.04"
)


def build(spec: Spec, cluster: Cluster, manifests: Manifests) -> Component:
    if not spec.driver.enabled:
        return Component(NAME, enabled=False)
    if failing := common.failing(NAME, spec.driver, "driver"):
        return failing
    if not _names_system(spec.driver):
        return Component(NAME, unserved=NO_SYSTEM.format(version=spec.driver.version))
    objects = common.documents(manifests, FILE, cluster)
    (workload,) = common.of_kind(objects, "DaemonSet")
    common.on_nodes(workload, spec, spec.driver, cluster, default=common.container(workload)["image"])
    common.select(workload, driver="true")
    return Component(NAME, tuple(objects))


def _names_system(said: Image) -> bool:
    return bool(said.image) or said.version.startswith(images.DIGEST) or "-" in said.version
