"""`gpushare node --sell=gpus`: NVIDIA's flags and variables on the command line."""

from pathlib import Path

import pytest

from gpushare import cli
from gpushare.node.nvidia.config_source import Places
from gpushare.node.nvidia.rules import flags, settings
from tests.support import manifests
from tests.test_cli import error

NO_EFFECT = ("mps-root", "device-discovery-strategy")  # nothing but their default can be served


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "LOG_LEVEL", "CONFIG_FILE", "CONFIG_FILE_SRCDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_nvidias_flags_are_taken_as_its_plugin_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    config = manifests.selling_config(
        [
            "node", "--sell", "gpus", "--pass-device-specs", "--fail-on-init-error=false", "--nvidia-driver-root=/host",
            "--device-list-strategy=envvar", "--device-list-strategy", "cdi-cri,cdi-annotations",
            "--device-id-strategy=uuid", "--device-id-strategy=index", "--kubelet-socket=", "--config-file=/c.yaml",
        ],
        monkeypatch,
    )  # fmt: skip
    assert config.given == {
        "pass-device-specs": "true",
        "fail-on-init-error": "false",
        "driver-root": "/host",
        "device-list-strategy": "envvar,cdi-cri,cdi-annotations",
        "device-id-strategy": "index",
        "kubelet-socket": "",
    }
    assert config.places == Places(file="/c.yaml")
    assert (config.node, config.host, config.port) == ("gpu-a", "127.0.0.1", 12346)


def test_nvidias_variables_are_taken_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"MIG_STRATEGY": "none", "DP_DISABLE_HEALTHCHECKS": "all", "KUBELET_SOCKET": ""}
    for name, value in {**given, "SECRET": "x", "CONFIG_FILE_SRCDIR": "/configs", "DEFAULT_CONFIG": "a"}.items():
        monkeypatch.setenv(name, value)
    config = manifests.selling_config(["node", "--sell=gpus"], monkeypatch)
    assert config.environment == given
    assert config.places == Places(folder="/configs", default="a")


def test_another_thing_to_sell_is_told_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert error(capsys, "node", "--sell=gpu") == [
        'unknown --sell value "gpu"', "--sell values: shares, gpus", "--sell gpus",
    ]  # fmt: skip


@pytest.mark.parametrize("word", ["--pin=direct", "--memory-unit=MiB", "--reserve=1", "--mps-slots=3", "--nvidia-gpu"])
def test_options_for_shares_are_named_as_such_where_gpus_are_sold(
    capsys: pytest.CaptureFixture[str], word: str
) -> None:
    assert error(capsys, "node", "--sell=gpus", word) == [
        f"unknown option {word.partition('=')[0]}",
        "it is an option of gpushare node, not of gpushare node --sell=gpus",
        "leave it out; gpushare node --sell=gpus --help",
    ]


@pytest.mark.parametrize("word", ["--mig-strategy=none", "--config-file=x", "--nvidia-driver-root"])
def test_options_for_gpus_are_named_as_such_where_shares_are_sold(
    capsys: pytest.CaptureFixture[str], word: str
) -> None:
    what, why, _ = error(capsys, "node", word)
    assert what == f"unknown option {word.partition('=')[0]}"
    assert why == "it is an option of gpushare node --sell=gpus, not of gpushare node"


def test_a_node_sells_one_thing(capsys: pytest.CaptureFixture[str]) -> None:
    assert error(capsys, "node", "--sell=gpus", "--sell", "shares")[0] == "two things to sell"


def test_every_option_that_can_be_served_is_in_the_help_for_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["node", "--sell", "gpus", "--help"])
    shown = capsys.readouterr().out
    served = [flag.name for flag in flags.FLAGS if flag.name not in (*settings.CANNOT, "imex-required", *NO_EFFECT)]
    assert [name for name in ("config-file", "config-dir", *served) if f"--{name}" not in shown] == []


def test_a_config_comes_from_one_place(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("node", "--sell=gpus", "--config-file=a", "--config-dir=b")
    assert error(capsys, *words)[0] == "two places for one config"


def test_a_wrong_value_is_told_before_anybody_is_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(
        "{clusters: [{name: a, cluster: {server: 'http://127.0.0.1:9'}}], contexts: [{name: a, context: {cluster: a}}],"
        " current-context: a}"
    )
    assert cli.main(["node", "--sell=gpus", "--node-name=a", f"--kubeconfig={kubeconfig}", "--mig-strategy=some"]) == 2
    assert '--mig-strategy: unknown value "some"' in capsys.readouterr().err
    monkeypatch.setenv("DP_ENABLE_HEALTHCHECKS", "many")
    assert cli.main(["node", "--sell=gpus", "--node-name=a", f"--kubeconfig={kubeconfig}"]) == 2
    assert 'DP_ENABLE_HEALTHCHECKS has "many"' in capsys.readouterr().err
