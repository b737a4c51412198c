"""deploy/keti: KETI's names and its installation's files, with as few rights as they need, on any cluster."""

import re
from pathlib import Path

import pytest
import yaml

import gpushare
from gpushare.core.facts import names
from gpushare.core.facts.scoring import configmaps
from gpushare.core.facts.scoring.settings import KETI_LONG, KETI_SHORT
from tests.support import manifests

KETI = manifests.DEPLOY / "keti"
FOLDER = KETI / "deployments"
FILES = sorted(str(path.relative_to(manifests.DEPLOY)) for path in FOLDER.rglob("*.yaml"))
OF_USERS = "keti/deployments/testgpupod.yaml"  # it is theirs, to the letter
NAMESPACED = (
    "ServiceAccount", "Role", "RoleBinding", "Deployment", "DaemonSet", "StatefulSet", "Service", "ConfigMap",
)  # fmt: skip
SCHEDULER, PLUGIN, COLLECTOR, INFLUX = (
    f"keti/deployments/{name}.yaml" for name in ("gpu-scheduler", "device-plugin", "metric-collector", "influxdb")
)
KINDS = {SCHEDULER: "Deployment", PLUGIN: "DaemonSet", COLLECTOR: "DaemonSet", INFLUX: "StatefulSet"}
OFF = [{"key": "gpu", "operator": "NotIn", "values": ["off", "false", "no"]}]


def pod(name: str) -> manifests.Object:
    return dict(manifests.one(name, KINDS[name])["spec"]["template"]["spec"])


def container(name: str, called: str) -> manifests.Object:
    (found,) = (container for container in pod(name)["containers"] if container["name"] == called)
    return dict(found)


@pytest.mark.parametrize("name", sorted(set(FILES) - {OF_USERS}))
def test_every_object_says_whose_it_is_and_is_in_ketis_namespace(name: str) -> None:
    for document in manifests.documents(name):
        assert document["apiVersion"]
        assert document["metadata"]["labels"]["app"] == "gpushare", document["metadata"]["name"]
        wanted = {"gpu", "kube-system"} if document["kind"].startswith("Role") else {"gpu"}
        namespaced = document["kind"] in NAMESPACED
        assert document["metadata"].get("namespace") in (wanted if namespaced else {None})


def test_the_modules_and_accounts_have_ketis_names() -> None:
    modules = {name: manifests.one(name, kind)["metadata"]["name"] for name, kind in KINDS.items()}
    assert modules == {
        SCHEDULER: "keti-gpu-scheduler",
        PLUGIN: "keti-gpu-device-plugin",
        COLLECTOR: "keti-gpu-metric-collector",
        INFLUX: "influxdb",
    }
    accounts = manifests.documents("keti/deployments/rbac/service_account.yaml")
    assert [(one["kind"], one["metadata"]["name"]) for one in accounts] == [
        ("ServiceAccount", "scheduler"),
        ("ServiceAccount", "keti-gpu-device-plugin"),
    ]
    assert pod(SCHEDULER)["serviceAccountName"] == "scheduler"
    assert pod(PLUGIN)["serviceAccountName"] == pod(COLLECTOR)["serviceAccountName"] == "keti-gpu-device-plugin"
    assert [one["name"] for one in pod(PLUGIN)["containers"]] == ["keti-gpu-device-plugin", "mps"]


@pytest.mark.parametrize("name", KINDS)
def test_no_node_is_named_and_selectors_find_their_pods(name: str) -> None:
    document = manifests.one(name, KINDS[name])
    assert "nodeName" not in pod(name)
    labels = document["metadata"]["labels"]
    assert document["spec"]["selector"]["matchLabels"] == document["spec"]["template"]["metadata"]["labels"] == labels


def test_images_are_ours_or_have_a_version() -> None:
    images = {one["image"] for name in KINDS for one in pod(name)["containers"]}
    ours = {image for image in images if image.startswith("gpushare:")}
    assert ours == {f"gpushare:{gpushare.__version__}"}
    assert all(re.search(r":v?\d+\.\d+\.\d+$", image) for image in images - ours), images


@pytest.mark.parametrize("name", KINDS)
def test_every_container_is_probed_and_says_what_it_needs(name: str) -> None:
    for one in pod(name)["containers"]:
        assert {"livenessProbe", "readinessProbe"} <= one.keys(), one["name"]
        assert set(one["resources"]["requests"]) == {"cpu", "memory"}
    assert pod(name)["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}


@pytest.mark.parametrize("name", [PLUGIN, COLLECTOR])
def test_parts_on_nodes_run_where_nobody_said_off_and_tolerate_ketis_taint(name: str) -> None:
    affinity = pod(name)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert [term["matchExpressions"] for term in affinity["nodeSelectorTerms"]] == [OFF]
    assert pod(name)["tolerations"] == [{"key": names.MPS_GPU, "operator": "Exists"}]


def test_only_the_container_with_mps_can_do_more_than_it_must() -> None:
    for name in KINDS:
        for one in pod(name)["containers"]:
            rights = one["securityContext"]
            if one["name"] == "mps":
                assert rights["privileged"], "it sets the compute mode of GPUs"
            else:
                assert "privileged" not in rights
                assert (rights["allowPrivilegeEscalation"], rights["capabilities"]) == (False, {"drop": ["ALL"]})


def test_an_update_does_not_end_the_programs_of_mps_clients() -> None:
    assert manifests.one(PLUGIN, "DaemonSet")["spec"]["updateStrategy"] == {"type": "OnDelete"}


def test_mps_and_the_node_part_mean_the_same_folders() -> None:
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in pod(PLUGIN)["volumes"]}
    for one in pod(PLUGIN)["containers"]:
        assert all(mount["mountPath"] == paths[mount["name"]] for mount in one["volumeMounts"]), one["name"]
    assert {names.MPS_PIPE_FOLDER, names.MPS_STATUS_FOLDER} <= set(paths.values())
    assert pod(PLUGIN)["hostIPC"], f"the daemon's {names.SHM_FOLDER} is the node's"
    assert f"--mps-status={names.MPS_STATUS_FOLDER}" in container(PLUGIN, "keti-gpu-device-plugin")["args"]


def test_there_is_one_scheduler_with_a_lease_in_ketis_namespace() -> None:
    document = manifests.one(SCHEDULER, "Deployment")
    assert (document["spec"]["replicas"], document["spec"]["strategy"]) == (1, {"type": "Recreate"})
    config = yaml.safe_load(manifests.one(SCHEDULER, "ConfigMap")["data"]["config.yaml"])
    assert config["profiles"] == [{"schedulerName": "gpu-scheduler"}]
    assert config["leaderElection"] == {
        "leaderElect": True, "resourceName": "gpu-scheduler", "resourceNamespace": "gpu"
    }  # fmt: skip
    (entry,) = config["extenders"]
    assert "managedResources" not in entry, "it is asked about pods without GPUs, too"
    (other,) = yaml.safe_load(manifests.one("gpu-scheduler.yaml", "ConfigMap")["data"]["config.yaml"])["extenders"]
    assert entry == {key: value for key, value in other.items() if key != "managedResources"}


def test_the_extender_is_started_like_the_others_but_for_its_policy() -> None:
    ours = container(SCHEDULER, manifests.EXTENDER)
    other = manifests.container("gpu-scheduler.yaml")
    more = ["--policy=metric", "--policy-namespace=gpu"]
    assert [word for word in ours["args"] if word not in more] == other["args"]
    assert set(more) < set(ours["args"])
    assert {key: value for key, value in ours.items() if key != "args"} == {
        key: value for key, value in other.items() if key != "args"
    }


def test_the_collector_writes_to_the_influxdb_that_is_shipped() -> None:
    service, stateful = manifests.one(INFLUX, "Service"), manifests.one(INFLUX, "StatefulSet")
    (port,) = service["spec"]["ports"]
    address = f"http://{service['metadata']['name']}.{service['metadata']['namespace']}.svc.cluster.local"
    (word,) = (w for w in container(COLLECTOR, "keti-gpu-metric-collector")["args"] if w.startswith("--influx="))
    assert word == f"--influx={address}:{port['port']}"
    assert pod(COLLECTOR)["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert service["spec"]["selector"] == stateful["spec"]["template"]["metadata"]["labels"]
    (claim,) = stateful["spec"]["volumeClaimTemplates"]
    (mount,) = container(INFLUX, "influxdb")["volumeMounts"]
    assert (mount["name"], mount["mountPath"]) == (claim["metadata"]["name"], "/var/lib/influxdb")


def test_the_volume_is_for_that_influxdb_only() -> None:
    stateful = manifests.one(INFLUX, "StatefulSet")
    (claim,) = stateful["spec"]["volumeClaimTemplates"]
    volume = manifests.one("keti/deployments/influxpv.yaml", "PersistentVolume")["spec"]
    assert volume["claimRef"] == {"namespace": "gpu", "name": f"{claim['metadata']['name']}-influxdb-0"}
    assert volume["capacity"]["storage"] == claim["spec"]["resources"]["requests"]["storage"]
    assert volume["accessModes"] == claim["spec"]["accessModes"]
    assert "storageClassName" not in claim["spec"], "the cluster's default class, if it has one"
    assert volume["persistentVolumeReclaimPolicy"] == "Retain"


@pytest.mark.parametrize(("name", "keys"), [("gpu-scheduler-configmap", 2), ("gpu-scheduler-policy", 11)])
def test_the_policies_have_ketis_names_and_numbers_of_keys(name: str, keys: int) -> None:
    policy = manifests.one(f"keti/deployments/{name}.yaml", "ConfigMap")
    assert policy["metadata"]["name"] == name
    assert name in names.POLICY_CONFIGMAPS
    assert len(policy["data"]) == keys
    assert all(isinstance(value, str) for value in policy["data"].values())


def test_the_policies_are_shipped_with_ketis_defaults() -> None:
    short, long = (
        manifests.one(f"keti/deployments/{name}.yaml", "ConfigMap")["data"] for name in names.POLICY_CONFIGMAPS
    )
    assert configmaps.read({names.POLICY_CONFIGMAPS[0]: short}) == KETI_SHORT
    assert configmaps.read({names.POLICY_CONFIGMAPS[1]: long}) == KETI_LONG
    assert set(long) == set(configmaps.KEYS)


def test_every_manifest_with_an_extender_names_those_that_it_must_not_run_beside() -> None:
    ours = {"extender.yaml", "extender-tls.yaml", "gpu-scheduler.yaml", SCHEDULER}
    with_one = {
        str(path.relative_to(manifests.DEPLOY))
        for path in manifests.DEPLOY.rglob("*.yaml")
        if re.search(r"args: \[extender\b|^ +- extender$", path.read_text("utf-8"), re.MULTILINE)
    }
    assert with_one == ours
    for name in ours:
        begins = (manifests.DEPLOY / name).read_text("utf-8").partition("apiVersion")[0]
        assert "extender.yaml" in begins or name == "extender.yaml"
        assert ("keti" if name != SCHEDULER else "extender-tls.yaml") in begins


def test_ketis_job_is_as_in_ketis_guide() -> None:
    job = manifests.one(OF_USERS, "Job")
    spec = job["spec"]["template"]["spec"]
    assert (job["metadata"]["name"], job["metadata"]["namespace"]) == ("nbody-benchmark-mps-test", "userpod")
    assert (spec["hostIPC"], spec["schedulerName"], spec["restartPolicy"]) == (True, "gpu-scheduler", "Never")
    (main,) = spec["containers"]
    assert main["image"] == "seedjeffwan/nbody:cuda-10.1"
    assert main["resources"]["limits"] == {"keti.com/mpsgpu": 1, "cpu": "250m", "memory": "6400Mi"}
    assert main["volumeMounts"] == [{"name": "nvidia-mps", "mountPath": "/tmp/nvidia-mps"}]
    assert spec["volumes"] == [{"name": "nvidia-mps", "hostPath": {"path": "/tmp/nvidia-mps"}}]


def test_every_manifest_is_applied_by_a_script_or_is_for_people() -> None:
    scripts = "".join(path.read_text("utf-8") for path in KETI.glob("*.sh"))
    optional = {Path("gpu-scheduler-policy.yaml")}
    shipped = {path.relative_to(FOLDER) for path in FOLDER.rglob("*.yaml")}
    assert {path for path in shipped if f"$manifests/{path}" not in scripts} == optional


@pytest.mark.parametrize(
    ("name", "called"),
    [(PLUGIN, "keti-gpu-device-plugin"), (PLUGIN, "mps"), (COLLECTOR, "keti-gpu-metric-collector")],
)
def test_what_runs_on_all_nodes_is_quiet_where_there_is_no_driver(name: str, called: str) -> None:
    assert "--fail-on-init-error=false" in container(name, called)["args"]
