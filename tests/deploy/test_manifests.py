"""The manifests are complete, keep Aliyun's names, and run what there is with as little as it needs."""

import re

import pytest

import gpushare
from gpushare.cli import help
from gpushare.extender import app, binder
from gpushare.install import entries
from gpushare.kube.scraping.server import Listening
from tests.support import manifests

ALIYUN = {"app": "gpushare", "component": "gpushare-schd-extender"}
NAMESPACED = (
    "ServiceAccount", "Role", "RoleBinding", "Deployment", "DaemonSet", "Job", "Service", "ConfigMap", "Secret",
    "PodDisruptionBudget",
)  # fmt: skip


@pytest.mark.parametrize("name", manifests.NAMES)
def test_every_object_says_what_it_is_and_whose(name: str) -> None:
    for document in manifests.documents(name):
        assert document["apiVersion"]
        assert document["metadata"]["labels"]["app"] == "gpushare", document["metadata"]["name"]
        namespaced = document["kind"] in NAMESPACED
        assert document["metadata"].get("namespace") == ("kube-system" if namespaced else None)


@pytest.mark.parametrize("name", ["extender.yaml", "extender-tls.yaml"])
def test_the_extender_has_aliyuns_names_and_labels(name: str) -> None:
    for kind in ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Deployment"):
        document = manifests.one(name, kind)
        assert document["metadata"]["name"] == manifests.EXTENDER
        assert document["metadata"]["labels"] == ALIYUN
    spec = manifests.one(name, "Deployment")["spec"]
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"] == ALIYUN


@pytest.mark.parametrize("name", manifests.WITH_EXTENDER)
def test_there_is_never_a_second_extender_beside_the_first(name: str) -> None:
    spec = manifests.one(name, "Deployment")["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


@pytest.mark.parametrize("name", ["extender.yaml", "extender-tls.yaml"])
def test_old_and_new_control_planes_take_it(name: str) -> None:
    pod = manifests.one(name, "Deployment")["spec"]["template"]["spec"]
    roles = {"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"}
    affinity = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    terms = [term["matchExpressions"] for term in affinity["nodeSelectorTerms"]]
    assert {expression["key"] for (expression,) in terms} == roles
    tolerated = {toleration["key"] for toleration in pod["tolerations"] if toleration["effect"] == "NoSchedule"}
    assert tolerated == roles | {"node.cloudprovider.kubernetes.io/uninitialized"}


@pytest.mark.parametrize("name", manifests.WITH_EXTENDER)
def test_no_container_can_do_more_than_it_must(name: str) -> None:
    pod = manifests.one(name, "Deployment")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["priorityClassName"] == "system-cluster-critical"
    for container in pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert set(container["resources"]["requests"]) == {"cpu", "memory"}


@pytest.mark.parametrize("name", manifests.WITH_EXTENDER)
def test_the_image_is_the_one_we_make(name: str) -> None:
    assert manifests.container(name)["image"] == f"gpushare:{gpushare.__version__}"


def test_plain_http_is_served_on_loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _started(monkeypatch, "extender.yaml") == ("127.0.0.1", [12345, 32766])
    assert _started(monkeypatch, "gpu-scheduler.yaml") == ("127.0.0.1", [12345])
    assert manifests.one("extender.yaml", "Deployment")["spec"]["template"]["spec"]["hostNetwork"]
    ports = manifests.container("extender.yaml")["ports"]
    loopback = [(port["hostIP"], port["containerPort"]) for port in ports if port["name"] != "metrics"]
    assert loopback == [("127.0.0.1", 12345), ("127.0.0.1", 32766)]
    assert not [d for d in manifests.documents("extender.yaml") if d["kind"] == "Service"]


def test_what_others_can_reach_asks_for_a_certificate() -> None:
    given = dict(word.removeprefix("--").split("=") for word in manifests.container("extender-tls.yaml")["args"][1:])
    (volume,) = manifests.one("extender-tls.yaml", "Deployment")["spec"]["template"]["spec"]["volumes"]
    assert given == {
        "listen": "0.0.0.0",
        "port": "12345",
        "tls-cert": "/tls/tls.crt",
        "tls-key": "/tls/tls.key",
        "client-ca": "/tls/ca.crt",
        "metrics-listen": "[$(POD_IP)]:12348",
    }
    assert all(f"--{flag}" in help.EXTENDER for flag in given)
    assert volume["secret"]["secretName"] in (manifests.ROOT / "docs" / "install-manifests.md").read_text("utf-8")
    (port,) = manifests.one("extender-tls.yaml", "Service")["spec"]["ports"]
    assert (port["targetPort"], port["nodePort"]) == (
        manifests.container("extender-tls.yaml")["ports"][0]["name"],
        32766,
    )
    assert f":{port['nodePort']}/" in entries.OVER_TLS["urlPrefix"]


@pytest.mark.parametrize("name", manifests.WITH_EXTENDER)
def test_prometheus_is_answered_at_the_address_of_the_pod(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The same port in all manifests, so that one job scrapes each of them. With tokens: no files are given."""
    container = manifests.container(name)
    (word,) = (word for word in container["args"] if word.startswith("--metrics-listen="))
    config = manifests.extender_config(["extender", word], monkeypatch)
    assert config.metrics == Listening(manifests.POD_IP, 12348)
    (variable,) = container["env"]
    assert variable == {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    (port,) = (port for port in container["ports"] if port["name"] == "metrics")
    assert port["containerPort"] == 12348
    assert port.get("hostIP") is None


@pytest.mark.parametrize("name", manifests.WITH_EXTENDER)
def test_probes_ask_where_it_listens(name: str) -> None:
    container = manifests.container(name)
    for probe, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        asked = container[probe]
        if "httpGet" in asked:
            assert asked["httpGet"] == {"host": "127.0.0.1", "port": 12345, "path": path}
        else:
            python, flag, program = asked["exec"]["command"]
            assert (python, flag) == ("python3", "-c")
            compile(program, name, "exec")
            assert f"://127.0.0.1:12345{path}" in program


@pytest.mark.parametrize("name", manifests.WITH_EXTENDER)
def test_it_is_given_the_time_to_finish_its_bindings(name: str) -> None:
    pod = manifests.one(name, "Deployment")["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > app.STOP_SECONDS + 5
    assert binder.ANSWER_SECONDS < entries.TIMEOUT_SECONDS


def test_commands_in_the_guide_name_files_that_are_there() -> None:
    guide = (manifests.ROOT / "docs" / "install-manifests.md").read_text("utf-8")
    mentioned = set(re.findall(r"\bdeploy/[\w./-]+\.(?:yaml|json|sh)", guide))
    assert {path for path in mentioned if not (manifests.ROOT / path).exists()} == set()
    shipped = {str(path.relative_to(manifests.ROOT)) for path in manifests.DEPLOY.rglob("*") if path.is_file()}
    assert shipped - mentioned == set()


def _started(monkeypatch: pytest.MonkeyPatch, name: str) -> tuple[str, list[int]]:
    """What the command line makes of a manifest's arguments."""
    config = manifests.extender_config(manifests.container(name)["args"], monkeypatch)
    assert config.tls is None
    return config.host, config.ports
