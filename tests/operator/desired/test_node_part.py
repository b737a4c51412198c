"""The node part of a policy: its flags are those of the program, and what the manifests have commented out."""

import re
from typing import Any

import pytest
import yaml

from gpushare.core.facts import names
from tests.support import manifests, policies

SHARES, GPUS = "gpushare-node", "gpushare-nvidia"
REPLICAS = policies.POLICIES["mps replicas"]


def args(said: dict[str, Any], name: str) -> list[str]:
    words: list[str] = policies.container(said, name)["args"]
    return words


def test_both_kinds_of_nodes_are_always_served() -> None:
    for said in ({}, {"sharing": {"sell": "gpus"}}):
        assert policies.pod(said, SHARES)["nodeSelector"] == {
            names.SHARED: names.SHARED_MEMORY, "nvidia.com/gpu.deploy.device-plugin": "true",
        }  # fmt: skip
        assert policies.pod(said, GPUS)["nodeSelector"] == {
            names.SHARED: names.SHARED_GPUS, "nvidia.com/gpu.deploy.device-plugin": "true",
        }  # fmt: skip


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ({}, ["node", "--memory-unit=MiB", "--discovery=auto"]),
        ({"sharing": {"memoryUnit": "GiB", "reserveMiB": 300}, "gfd": {"enabled": False}},
         ["node", "--memory-unit=GiB", "--reserve=300"]),
        ({"sharing": {"mpsSlots": 10}, "gfd": {"enabled": False}}, ["node", "--memory-unit=MiB", "--mps-slots=10"]),
        ({"sharing": {"mpsSlots": 10}, "mps": {"enabled": True}, "gfd": {"enabled": False}},
         ["node", "--memory-unit=MiB", "--mps-slots=10", "--mps-status=/run/nvidia/mps"]),
        ({"admission": {"nvidiaGpu": "whole"}, "gfd": {"enabled": False}},
         ["node", "--memory-unit=MiB", "--nvidia-gpu=whole"]),
        ({"dcgmExporter": {"args": ["--hostname-label=hostname"]}, "gfd": {"args": ["--debug"]},
          "devicePlugin": {"args": ["--pin=direct"]}},
         ["node", "--memory-unit=MiB", "--discovery=auto", "--debug", "--hostname-label=hostname", "--pin=direct"]),
    ],
)  # fmt: skip
def test_a_node_that_sells_shares_has_these_flags(said: dict[str, Any], wanted: list[str]) -> None:
    assert args(said, SHARES) == wanted


def test_its_flags_are_those_that_the_program_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = manifests.node_config(args(policies.EVERYTHING, SHARES), monkeypatch)
    assert (shares.slots, str(shares.mps_status)) == (10, names.MPS_STATUS_FOLDER)
    selling = manifests.selling_config(args(REPLICAS, GPUS), monkeypatch)
    assert str(selling.mps_status) == names.MPS_STATUS_FOLDER
    unwatched = manifests.node_config(args({"dcgmExporter": {"enabled": False}}, SHARES), monkeypatch)
    assert unwatched.observing.exporter.listen is None


def test_a_named_config_has_to_be_there() -> None:
    (configs,) = (one for one in policies.pod(REPLICAS, GPUS)["volumes"] if one["name"] == "configs")
    assert configs["configMap"] == {"name": "plugin-configs"}
    assert "--default-config=mps" in args(REPLICAS, GPUS)
    (configs,) = (one for one in policies.pod({}, GPUS)["volumes"] if one["name"] == "configs")
    assert configs["configMap"] == {"name": "gpushare-nvidia", "optional": True}


def test_flags_of_the_plugin_are_for_what_the_policy_sells() -> None:
    said = {"sharing": {"sell": "gpus"}, "devicePlugin": {"args": ["--device-list-strategy=cdi-cri"]}}
    assert args(said, GPUS)[-1] == "--device-list-strategy=cdi-cri"
    assert "--device-list-strategy=cdi-cri" not in args(said, SHARES)


@pytest.mark.parametrize(("said", "reads", "other"), [(policies.EVERYTHING, SHARES, GPUS), (REPLICAS, GPUS, SHARES)])
def test_the_kind_that_is_sold_reads_reports_of_the_mps_daemon(said: dict[str, Any], reads: str, other: str) -> None:
    assert "--mps-status=/run/nvidia/mps" in args(said, reads)
    assert "--mps-status=/run/nvidia/mps" not in args(said, other)
    assert "mps" in [volume["name"] for volume in policies.pod(said, reads)["volumes"]]
    assert "mps" not in [volume["name"] for volume in policies.pod(said, other)["volumes"]]


@pytest.mark.parametrize("file", ["node-ds.yaml", "nvidia-ds.yaml"])
def test_the_mounts_for_mps_are_the_lines_that_the_manifest_has_commented_out(file: str) -> None:
    said, name = (policies.EVERYTHING, SHARES) if file == "node-ds.yaml" else (REPLICAS, GPUS)
    commented = "\n".join(re.findall(r"# (- \{name: mps, .*\})$", (manifests.DEPLOY / file).read_text("utf-8"), re.M))
    (mount,) = (one for one in policies.container(said, name)["volumeMounts"] if one["name"] == "mps")
    (volume,) = (one for one in policies.pod(said, name)["volumes"] if one["name"] == "mps")
    assert yaml.safe_load(commented) == [mount, volume]


def test_without_the_exporter_its_port_is_free_for_others() -> None:
    for name in (SHARES, GPUS):
        ports = [port["name"] for port in policies.container({"dcgmExporter": {"enabled": False}}, name)["ports"]]
        assert ports == ["http"]
        assert "metrics" in [port["name"] for port in policies.container({}, name)["ports"]]


def test_the_mps_daemon_runs_only_where_its_clients_are() -> None:
    assert policies.pod(policies.EVERYTHING, "gpushare-mps")["nodeSelector"][names.SHARED] == names.SHARED_MEMORY
    assert policies.pod(REPLICAS, "gpushare-mps")["nodeSelector"][names.SHARED] == names.SHARED_GPUS


@pytest.mark.parametrize("sell", ["memory", "gpus"])
def test_an_mps_daemon_that_serves_nobody_is_not_started(sell: str) -> None:
    made = policies.desired({"mps": {"enabled": True}, "sharing": {"sell": sell}})["mps"]
    assert made.objects == ()
    assert "set sharing.mpsSlots" in made.unserved
