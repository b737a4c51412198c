"""The scripts of deploy/keti: KETI's names, plain sh, and one sentence when nothing can be done.

They run here with a stand-in for kubectl that writes down what it is told. tests/e2e/test_keti.py runs them on a real
cluster.
"""

import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support import manifests

KETI = manifests.DEPLOY / "keti"
SCRIPTS = sorted(KETI.glob("[0-9].*.sh"))
# Answers like a cluster of version $VERSION with the objects $THERE ("namespace/kind/name"), and writes down the rest.
KUBECTL = r"""#!/bin/sh
echo "$*" >> "$TOLD"
case "$*" in
*"--raw /version"*) [ -z "$DOWN" ] || { echo "The connection to the server was refused" >&2; exit 1; }
    echo "{\"gitVersion\": \"$VERSION\"}" ;;
*"--raw /apis/"*) [ "$POLICIES" = no ] || echo '{"resources":[{"name":"mutatingadmissionpolicies"}]}' ;;
*"--ignore-not-found -o name"*) for one in $THERE; do case " $* " in *" $one "*) echo "$one" ;; esac; done ;;
*"jsonpath={.metadata.labels.app}"*) echo "$LABEL" ;;
*"get storageclass"*) echo "$CLASSES" ;;
*"get clusterrolebindings"*) printf '%s\n' "cluster-admin /system:masters" "$ADMIN" ;;
*"/{.status.observedGeneration}/"*) echo "$STATE" ;;
*"get nodes"*) printf 'gpu-a NoSchedule\ngpu-b \n' ;;
*"apply -f -"*) echo --- >> "$GIVEN"; cat >> "$GIVEN" ;;
esac
"""


class Kubectl:
    """What a script told kubectl, and what it said itself."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told, self.given = folder / "told", folder / "given"
        program = folder / "kubectl"
        program.write_text(KUBECTL)
        program.chmod(0o755)

    def run(self, script: str, **words: str) -> "subprocess.CompletedProcess[str]":
        """From another folder than its own."""
        for file in (self.told, self.given):
            file.write_text("")
        defaults = {"VERSION": "v1.36.4", "THERE": "serviceaccount scheduler", "LABEL": "gpushare", "CLASSES": ""}
        environment = {
            **defaults, "POLICIES": "yes", "DOWN": "", "ADMIN": "", "STATE": "2/2/3/3", **words,
            "TOLD": str(self.told), "GIVEN": str(self.given), "PATH": f"{self.folder}:{os.environ['PATH']}",
        }  # fmt: skip
        command = ["sh", str(KETI / script)]
        return subprocess.run(
            command, cwd="/", env=environment, capture_output=True, text=True, timeout=60, check=False
        )

    def applied(self) -> list[str]:
        """Names of the files that were applied, in their order."""
        lines = [line for line in self.told.read_text().splitlines() if " apply -f " in f" {line}"]
        return [Path(path).name for line in lines for path in re.findall(r"-f (\S+)", line) if path != "-"]


@pytest.fixture
def kubectl(tmp_path: Path) -> Kubectl:
    return Kubectl(tmp_path)


def test_the_scripts_have_the_names_of_ketis_guide_and_one_removes_all() -> None:
    assert [path.name for path in SCRIPTS] == [
        "1.rbac-gpu-scheduler.sh",
        "2.policy-config-gpu-scheduler.sh",
        "2.polocy-config-gpu-scheduler.sh",
        "3.create-gpu-scheduler.sh",
        "4.test-gpupod.sh",
        "5.delete-gpu-scheduler.sh",
    ]


@pytest.mark.parametrize("script", [*SCRIPTS, KETI / "common.sh"], ids=lambda path: path.name)
def test_it_is_plain_sh(script: Path) -> None:
    done = subprocess.run(["sh", "-n", str(script)], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    if script.name != "common.sh":
        assert script.read_text("utf-8").startswith("#!/bin/sh\n")
        assert script.stat().st_mode & stat.S_IXUSR


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_without_a_cluster_or_kubectl_it_says_one_sentence_and_changes_nothing(script: Path, kubectl: Kubectl) -> None:
    done = kubectl.run(script.name, DOWN="yes")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("No cluster answers kubectl (The connection to the server was refused).")
    assert kubectl.told.read_text() == "get --raw /version\n"
    (kubectl.folder / "kubectl").unlink()
    for tool in ("sh", "dirname"):
        (kubectl.folder / tool).symlink_to(str(shutil.which(tool)))
    command = [str(kubectl.folder / "sh"), str(script)]
    alone = {"PATH": str(kubectl.folder)}
    done = subprocess.run(command, env=alone, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("kubectl not found:")
    assert len(done.stderr.splitlines()) == 1


def test_the_modules_come_after_what_admits_pods(kubectl: Kubectl) -> None:
    done = kubectl.run("3.create-gpu-scheduler.sh", CLASSES='{"storageclass.kubernetes.io/is-default-class":"true"}')
    assert done.returncode == 0, done.stderr
    assert kubectl.applied() == [
        "gpunodes.yaml", "admission.yaml", "guard.yaml", "node-guard.yaml", "validate.yaml", "priority.yaml",
        "influxdb.yaml", "device-plugin.yaml", "metric-collector.yaml",
    ]  # fmt: skip
    assert "kind: Deployment" in kubectl.given.read_text()
    assert "daemonset/keti-gpu-device-plugin is ready.\n" in done.stdout
    told = kubectl.told.read_text()
    for module in ("keti-gpu-scheduler", "keti-gpu-metric-collector", "influxdb"):
        assert re.search(rf"^-n gpu rollout status \w+/{module} ", told, re.MULTILINE)


@pytest.mark.parametrize("state", ["1//0/", "2/1/3/3", "2/2/3/", "2/2/3/1", ""])
def test_a_module_that_is_not_ready_in_time_is_named(kubectl: Kubectl, state: str) -> None:
    done = kubectl.run("3.create-gpu-scheduler.sh", STATE=state, WAIT_SECONDS="0")
    assert done.returncode == 1
    assert done.stderr.startswith("daemonset/keti-gpu-device-plugin is not ready after 0 s. See: kubectl -n gpu")


@pytest.mark.parametrize(
    ("version", "image", "format_"),
    [
        ("v1.36.4", "v1.36.4", "v1"),
        ("v1.33.5+k3s1", "v1.33.5", "v1"),
        ("v1.24.17-gke.100", "v1.24.17", "v1beta3"),
        ("v1.21.0", "v1.21.0", "v1beta1"),
    ],
)
def test_the_scheduler_is_of_the_clusters_version(kubectl: Kubectl, version: str, image: str, format_: str) -> None:
    assert kubectl.run("3.create-gpu-scheduler.sh", VERSION=version, THERE="serviceaccount scheduler").returncode == 0
    given = kubectl.given.read_text()
    assert re.findall(r"kube-scheduler:(\S+)", given) == [image]
    assert re.findall(r"kubescheduler.config.k8s.io/(\S+)", given) == [format_]


def test_before_1_36_a_webhook_admits_pods(kubectl: Kubectl) -> None:
    assert kubectl.run("3.create-gpu-scheduler.sh", VERSION="v1.33.1", POLICIES="no").returncode == 0
    assert kubectl.applied()[:3] == ["gpunodes.yaml", "webhook.yaml", "node-guard.yaml"]
    assert "admission.yaml" not in kubectl.applied()
    classes = [one for one in yaml.safe_load_all(kubectl.given.read_text()) if one["kind"] == "PriorityClass"]
    assert {one["metadata"]["name"] for one in classes} == {"gpu-low", "gpu-high", "gpu-immediate"}
    assert "AdmissionPolicy" not in kubectl.given.read_text()
    assert kubectl.run("3.create-gpu-scheduler.sh", VERSION="v1.27.1", POLICIES="no").returncode == 0
    assert "node-guard.yaml" not in kubectl.applied()
    assert "namespace userpod gpushare.io/pin=direct" in kubectl.told.read_text()


def test_a_volume_is_made_only_where_nobody_else_makes_one(kubectl: Kubectl) -> None:
    kubectl.run("3.create-gpu-scheduler.sh")
    assert "values: [gpu-b]" in kubectl.given.read_text(), "the first node that takes pods"
    for words in ({"CLASSES": '{"x/is-default-class":"true"}'}, {"THERE": "serviceaccount scheduler keti-influxdb"}):
        kubectl.run("3.create-gpu-scheduler.sh", **words)
        assert "PersistentVolume" not in kubectl.given.read_text()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"THERE": ""}, "The accounts are missing. First run ./1.rbac-gpu-scheduler.sh"),
        ({"THERE": "scheduler gpushare-schd-extender"}, "Another extender of gpushare runs in this cluster"),
        ({"THERE": "scheduler gpu-scheduler"}, "kubectl -n kube-system delete deployment gpu-scheduler"),
        ({"THERE": "scheduler gpushare-node"}, "DaemonSet gpushare-node serves the same GPUs."),
        ({"THERE": "scheduler gpushare-mps"}, "kubectl -n kube-system delete daemonset gpushare-mps"),
        ({"THERE": "scheduler deployment/keti-gpu-scheduler", "LABEL": ""}, "KETI's own deployment/keti-gpu-scheduler"),
        ({"VERSION": "v1.20.15"}, "Kubernetes v1.20.15 is too old"),
        ({"VERSION": "nonsense"}, "Kubernetes of unknown version is too old"),
    ],
)
def test_what_must_not_be_is_refused_in_one_sentence_and_nothing_changes(
    kubectl: Kubectl, words: dict[str, str], sentence: str
) -> None:
    done = kubectl.run("3.create-gpu-scheduler.sh", **words)
    assert done.returncode == 1
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert kubectl.applied() == []


@pytest.mark.parametrize("script", ["1.rbac-gpu-scheduler.sh", "3.create-gpu-scheduler.sh"])
@pytest.mark.parametrize("subjects", ["gpu/scheduler", "/jane gpu/keti-gpu-device-plugin"])
def test_an_account_that_is_cluster_admin_is_refused(kubectl: Kubectl, script: str, subjects: str) -> None:
    done = kubectl.run(script, ADMIN=f"of-keti {subjects}")
    assert (done.returncode, kubectl.applied()) == (1, [])
    assert done.stderr.endswith("Delete it first: kubectl delete clusterrolebinding of-keti\n")
    assert kubectl.run(script, ADMIN="other gpu/scheduler-of-others kube-system/scheduler").returncode == 0


def test_the_misspelt_name_sets_the_policy_and_deploys_the_modules(kubectl: Kubectl) -> None:
    assert kubectl.run("2.polocy-config-gpu-scheduler.sh").returncode == 0
    applied = kubectl.applied()
    assert applied[0] == "gpu-scheduler-configmap.yaml"
    assert "device-plugin.yaml" in applied
    done = kubectl.run("2.polocy-config-gpu-scheduler.sh", THERE="")
    assert (done.returncode, kubectl.applied()) == (0, ["gpu-scheduler-configmap.yaml"])
    assert "first run ./1.rbac-gpu-scheduler.sh" in done.stdout


def test_data_and_policy_stay_when_all_is_removed(kubectl: Kubectl) -> None:
    assert kubectl.run("5.delete-gpu-scheduler.sh").returncode == 0
    deleted = [line for line in kubectl.told.read_text().splitlines() if line.startswith("delete ")]
    assert any("gpu-scheduler.yaml" in line for line in deleted)
    assert not any(name in line for line in deleted for name in ("influxpv", "configmap", "namespace"))
