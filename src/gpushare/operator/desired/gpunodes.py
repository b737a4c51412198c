"""The definition of GPUNodes, which say what the GPUs of nodes do."""

from gpushare.operator.desired import common
from gpushare.operator.desired.component import Cluster, Component, Manifests
from gpushare.operator.desired.policy import Spec

NAME = "gpunodes"
FILE = "crds/gpunodes.yaml"


def build(spec: Spec, cluster: Cluster, manifests: Manifests) -> Component:
    return Component(NAME, tuple(common.documents(manifests, FILE, cluster)))
