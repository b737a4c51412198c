"""Clusters in which every machine is a control plane or a tainted GPU node."""

import pytest

from gpushare.operator import manifests
from gpushare.operator.desired import whole
from gpushare.operator.desired.component import Cluster
from gpushare.operator.desired.policy import Admission, Scheduler, Spec

TAINTS = ("node-role.kubernetes.io/control-plane", "nvidia.com/gpu")


@pytest.mark.parametrize(
    "spec",
    [
        Spec(admission=Admission(mode="webhook")),
        Spec(scheduler=Scheduler(mode="extender"), admission=Admission(mode="webhook")),
    ],
)
def test_scheduler_and_webhook_find_a_place_there(spec: Spec) -> None:
    cluster = Cluster("gpu-operator", (1, 36), "v1.36.4", "gpushare:1")
    made = [one for part in whole.desired(spec, cluster, manifests.load) for one in part.objects]
    deployments = [one for one in made if one["kind"] == "Deployment"]
    assert len(deployments) == 2
    for deployment in deployments:
        tolerated = [one.get("key") for one in deployment["spec"]["template"]["spec"]["tolerations"]]
        assert set(TAINTS) <= set(tolerated)
        assert len(tolerated) == len(set(tolerated))
