"""What a policy asks of the scheduler, as objects: a second kube-scheduler, the extender alone, or nothing."""

import pytest
import yaml

from gpushare.operator import manifests
from gpushare.operator.desired import scheduler
from gpushare.operator.desired.component import Cluster, Component, Object
from gpushare.operator.desired.policy import Image, Scheduler, Spec

HERE = Cluster("gpu-operator", (1, 36), "v1.36.4", "registry/gpushare:1", ("all",))


def built(wanted: Scheduler, cluster: Cluster = HERE) -> Component:
    return scheduler.build(Spec(scheduler=wanted), cluster, manifests.load)


def pod(component: Component) -> Object:
    (workload,) = (one for one in component.objects if one["kind"] == "Deployment")
    found: Object = workload["spec"]["template"]["spec"]
    return found


def container(component: Component, name: str) -> Object:
    (found,) = (one for one in pod(component)["containers"] if one["name"] == name)
    assert isinstance(found, dict)
    return found


def test_the_second_scheduler_has_the_clusters_version_and_its_lease_in_our_namespace() -> None:
    made = built(Scheduler())
    assert (made.name, made.unserved) == ("scheduler", "")
    assert container(made, "kube-scheduler")["image"] == "registry.k8s.io/kube-scheduler:v1.36.4"
    assert container(made, "gpushare-schd-extender")["image"] == "registry/gpushare:1"
    assert pod(made)["imagePullSecrets"] == [{"name": "all"}]
    (config,) = (one for one in made.objects if one["kind"] == "ConfigMap")
    read = yaml.safe_load(config["data"]["config.yaml"])
    assert read["leaderElection"]["resourceNamespace"] == config["metadata"]["namespace"] == HERE.namespace
    (lease,) = (one for one in made.objects if one["kind"] == "Lease")
    assert (lease["metadata"]["name"], lease["metadata"]["namespace"]) == (
        read["leaderElection"]["resourceName"],
        read["leaderElection"]["resourceNamespace"],
    )
    (role,) = (one for one in made.objects if (one["kind"], one["metadata"]["name"]) == ("Role", "gpu-scheduler"))
    assert role["metadata"]["namespace"] == HERE.namespace


@pytest.mark.parametrize(
    ("git", "tag"),
    [
        ("v1.36.4", "v1.36.4"),
        ("v1.30.4-eks-a737599", "v1.30.4"),
        ("v1.31.2+k3s1", "v1.31.2"),
        ("v1.29.3-gke.1282001", "v1.29.3"),
        ("v1.37.0-rc.1", "v1.37.0-rc.1"),
        ("v1.37.0-alpha.2.15+0f8cc0c92c4a3e", "v1.37.0-alpha.2"),
        ("", "v1.36.0"),
    ],
)
def test_what_vendors_add_to_a_version_is_in_no_public_image(git: str, tag: str) -> None:
    made = built(Scheduler(), HERE._replace(git_version=git))
    assert container(made, "kube-scheduler")["image"] == f"registry.k8s.io/kube-scheduler:{tag}"


def test_images_arguments_and_resources_can_be_chosen() -> None:
    own = Image(repository="mirror", version="v1.36.5", image_pull_policy="Always", image_pull_secrets=("mirror",))
    wanted = Scheduler(
        kube_scheduler=own, policy="spread", version="sha256:abc", args=("--patience", "1m"),
        resources={"limits": {"memory": "1Gi"}}, env=({"name": "LOG_LEVEL", "value": "debug"},),
    )  # fmt: skip
    made = built(wanted)
    first = container(made, "kube-scheduler")
    assert (first["image"], first["imagePullPolicy"]) == ("mirror/kube-scheduler:v1.36.5", "Always")
    extender = container(made, "gpushare-schd-extender")
    assert extender["image"] == "registry/gpushare@sha256:abc"
    assert extender["args"][-4:] == ["--policy", "spread", "--patience", "1m"]
    assert extender["resources"] == {"limits": {"memory": "1Gi"}}
    assert {"name": "LOG_LEVEL", "value": "debug"} in extender["env"]
    assert [one["name"] for one in pod(made)["imagePullSecrets"]] == ["all", "mirror"]
    assert first["args" if "args" in first else "command"] == [
        "kube-scheduler",
        "--config=/etc/gpu-scheduler/config.yaml",
    ]


def test_the_extender_alone_is_beside_the_clusters_own_scheduler() -> None:
    made = built(Scheduler(mode="extender", policy="keti"))
    assert [one["name"] for one in pod(made)["containers"]] == ["gpushare-schd-extender"]
    assert pod(made)["hostNetwork"] is True
    assert pod(made)["containers"][0]["args"][-2:] == ["--policy", "keti"]
    assert not [one for one in made.objects if one["kind"] in ("Lease", "ConfigMap")]


def test_where_unhealthy_gpus_are_told_the_rights_stay_and_the_account_is_ours() -> None:
    for mode in ("second", "extender"):
        made = built(Scheduler(mode=mode))
        stays = [one for one in made.objects if one["metadata"].get("namespace") == "kube-system"]
        assert {one["kind"] for one in stays} == {"Role", "RoleBinding"}
        subjects = [subject for one in made.objects for subject in one.get("subjects", ())]
        assert {subject["namespace"] for subject in subjects} == {HERE.namespace}


def test_what_cannot_be_served_is_said() -> None:
    old = HERE._replace(version=(1, 24), git_version="v1.24.9")
    assert "Kubernetes 1.25" in built(Scheduler(), old).unserved
    assert built(Scheduler(mode="extender"), old).unserved == ""
    assert "scheduler.image is x" in built(Scheduler(image="x")).unserved
    assert "scheduler.kubeScheduler.image is x" in built(Scheduler(kube_scheduler=Image(image="x"))).unserved
    assert built(Scheduler(enabled=False)) == Component("scheduler", enabled=False)
