"""One description of the extender, in the words of every kube-scheduler."""

import json
from typing import Any

import pytest
import yaml

from gpushare.core.facts import names
from gpushare.extender import server
from tests.e2e.harness import shipped, versions
from tests.support import manifests
from tools import render_scheduler

SCHEDULER = manifests.DEPLOY / "scheduler"
ALL = (versions.NEWEST, *(kind for kinds in versions.OLDER.values() for kind in kinds))


@pytest.mark.parametrize("path", sorted(render_scheduler.rendered()))
def test_the_file_is_what_would_be_written(path: str) -> None:
    written = (manifests.ROOT / path).read_text("utf-8")
    assert written == render_scheduler.rendered()[path], ".venv/bin/python -m tools.render_scheduler"


def test_no_other_configuration_is_there() -> None:
    shipped = {f"deploy/scheduler/{path.name}" for path in SCHEDULER.iterdir()}
    assert shipped == {path for path in render_scheduler.rendered() if path.startswith("deploy/scheduler/")}


def test_every_file_is_tried_with_a_kube_scheduler_that_reads_it() -> None:
    tried = {kind.file for kind in ALL}
    elsewhere = {"policy.yaml", "config-v1-tls.yaml"}  # the first is policy.json, the other has a test of its own
    assert {path.name for path in SCHEDULER.iterdir()} == tried | elsewhere


def test_the_guide_names_every_version_that_was_tried_with_its_file() -> None:
    guide = (manifests.ROOT / "docs/install-manifests.md").read_text("utf-8")
    rows = [line for line in guide.splitlines() if line.startswith("|") and "deploy/scheduler/" in line]
    for kind in ALL:
        (row,) = (line for line in rows if f"deploy/scheduler/{kind.file}" in line)
        assert kind.version.removeprefix("v") in row


def test_every_format_says_the_same() -> None:
    v1 = _read("config-v1.yaml")
    for older in ("v1beta1", "v1beta3"):
        assert {**v1, "apiVersion": f"kubescheduler.config.k8s.io/{older}"} == _read(f"config-{older}.yaml")
    policy = _read("policy.yaml")
    assert policy == json.loads((SCHEDULER / "policy.json").read_text("utf-8"))
    (of_policy,), (of_v1,) = policy["extenders"], v1["extenders"]
    assert {**of_policy, "httpTimeout": "5s"} == of_v1
    assert of_policy["httpTimeout"] == 5_000_000_000  # nanoseconds


def test_a_policy_names_its_priorities_and_none_that_stops_kube_scheduler_1_22() -> None:
    weights = {one["name"]: one["weight"] for one in _read("policy.yaml")["priorities"]}
    assert not weights.keys() & {"LeastRequestedPriority", "MostRequestedPriority", "RequestedToCapacityRatioPriority"}
    assert weights.pop("NodePreferAvoidPodsPriority") == 10000
    assert weights.pop("EvenPodsSpreadPriority") == 2
    assert set(weights.values()) == {1}, "the others have their default weight"
    assert "predicates" not in _read("policy.yaml"), "without a list the scheduler checks all that it does by default"


def test_the_extender_decides_and_every_node_is_offered() -> None:
    v1 = _read("config-v1.yaml")
    (entry,) = v1["extenders"]
    assert v1["percentageOfNodesToScore"] == 100
    assert entry["weight"] == 1000
    assert entry["ignorable"] is False
    assert entry["nodeCacheCapable"] is True
    resources = {managed["name"]: managed["ignoredByScheduler"] for managed in entry["managedResources"]}
    assert resources == dict.fromkeys((names.GPU_MEM, names.GPU_COUNT, names.NVIDIA_GPU, names.MPS_GPU), False)


def test_general_tuning_of_the_second_scheduler_is_offered_as_comments() -> None:
    assert shipped.scheduler_tuning() == (["--feature-gates=ContextualLogging=false"], {"GOGC": "400"})
    (deployment,) = (one for one in shipped.documents("gpu-scheduler.yaml") if one["kind"] == "Deployment")
    scheduler = deployment["spec"]["template"]["spec"]["containers"][0]
    assert not {"args", "env"} & scheduler.keys(), "more memory is for the owner of the cluster to decide"


def test_every_verb_is_one_the_extender_answers() -> None:
    (entry,) = _read("config-v1.yaml")["extenders"]
    verbs = {key: value for key, value in entry.items() if key.endswith("Verb")}
    assert set(verbs) == {"filterVerb", "prioritizeVerb", "preemptVerb", "bindVerb"}
    answered = (manifests.ROOT / "src/gpushare/extender/server.py").read_text("utf-8")
    assert all(f'"{verb}":' in answered or f'{{PREFIX}}/{verb}"' in answered for verb in verbs.values())
    assert entry["urlPrefix"].endswith(server.PREFIX)


def test_over_tls_only_the_way_there_differs() -> None:
    (plain,), (tls,) = _read("config-v1.yaml")["extenders"], _read("config-v1-tls.yaml")["extenders"]
    assert {key for key in tls if tls[key] != plain.get(key)} == {"urlPrefix", "enableHTTPS", "tlsConfig"}
    assert tls["urlPrefix"].startswith("https://")


def test_the_second_scheduler_has_a_name_and_a_lease_of_its_own() -> None:
    config = yaml.safe_load(manifests.one("gpu-scheduler.yaml", "ConfigMap")["data"]["config.yaml"])
    assert config["profiles"] == [{"schedulerName": "gpu-scheduler"}]
    assert config["leaderElection"]["resourceName"] == "gpu-scheduler"
    assert "clientConnection" not in config
    assert config["extenders"] == _read("config-v1.yaml")["extenders"]


def _read(name: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((SCHEDULER / name).read_text("utf-8"))
    return content
