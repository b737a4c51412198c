"""helm and the chart without a cluster: what it renders from six values files, and what it refuses.

    GPUSHARE_GOLDEN=write PYTHONPATH=src .venv/bin/python -m pytest tests/e2e/test_chart.py

writes the golden files anew; look at the difference before it goes anywhere. `default.yaml` has all objects but the
rights of the operator, which a test of their own compares; the others have those that differ from it.
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.harness import binaries, charts
from tests.e2e.harness.charts import Helm
from tests.e2e.harness.cluster import Failed, say
from tools import render_chart

Object = dict[str, Any]
DATA = Path(__file__).parent / "data" / "chart"
VALUES, WRONG, GOLDEN = DATA / "values", DATA / "wrong", DATA / "golden"
DEFAULT = VALUES / "default.yaml"
SAME = "# All is as in default.yaml.\n"


@pytest.fixture
def helm(tmp_path: Path) -> Helm:
    if not binaries.helm().exists():
        say(f"making {binaries.HELM} in {binaries.folder()}")
        binaries.ensure(binaries.HELM)
    return Helm(tmp_path)


def test_helm_finds_nothing_wrong_with_it(helm: Helm) -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", charts.CHART)


@pytest.mark.parametrize("name", sorted(path.name for path in VALUES.iterdir()))
def test_it_renders_what_the_values_ask_for(helm: Helm, name: str) -> None:
    rendered = _shown(helm.template("--values", VALUES / name))
    if name != DEFAULT.name:
        usual = _shown(helm.template("--values", DEFAULT))
        gone = [{"kind": one["kind"], "metadata": {"name": _name(one)}, "gone": True} for one in usual
                if (one["kind"], _name(one)) not in {(other["kind"], _name(other)) for other in rendered}]  # fmt: skip
        rendered = [*gone, *(one for one in rendered if one not in usual)]
    golden = GOLDEN / name
    if os.environ.get("GPUSHARE_GOLDEN") == "write":
        golden.write_text(yaml.safe_dump_all(rendered, sort_keys=False, width=120) or SAME)
    assert rendered == list(yaml.safe_load_all(golden.read_text()))


def test_there_is_a_golden_file_for_each_values_file_and_none_more() -> None:
    assert {path.name for path in VALUES.iterdir()} == {path.name for path in GOLDEN.iterdir()}
    assert len(list(VALUES.iterdir())) >= 6


@pytest.mark.parametrize("name", sorted(path.name for path in WRONG.iterdir()))
def test_it_refuses_values_that_mean_nothing_and_names_the_key(helm: Helm, name: str) -> None:
    expected = (WRONG / name).read_text().splitlines()[0].removeprefix("# ")
    with pytest.raises(Failed) as refused:
        helm.template("--values", WRONG / name)
    assert expected in str(refused.value)


@pytest.mark.parametrize("component", render_chart.ALWAYS_OFF)
def test_a_component_of_nvidias_that_is_off_changes_nothing(helm: Helm, component: str) -> None:
    assert helm.template("--set", f"{component}.enabled=false") == helm.template()


def test_a_default_config_that_is_not_there_is_refused(helm: Helm) -> None:
    with pytest.raises(Failed, match=r"devicePlugin\.config\.data is empty"):
        helm.template("--set", "devicePlugin.config.create=true")
    words = "devicePlugin.config.create=true,devicePlugin.config.data.four=x,devicePlugin.config.default=five"
    with pytest.raises(Failed, match=r'devicePlugin\.config\.default is "five", but .* has only: four'):
        helm.template("--set", words)


def test_it_can_be_a_part_of_another_chart(helm: Helm, tmp_path: Path) -> None:
    """helm adds `global` to its values then."""
    whole = tmp_path / "whole"
    (whole / "charts").mkdir(parents=True)
    (whole / "charts" / "gpushare").symlink_to(charts.CHART)
    (whole / "Chart.yaml").write_text("{apiVersion: v2, name: whole, version: 1.0.0}")
    assert _shown(helm.template(chart=whole)) == _shown(helm.template())


def test_its_notes_say_the_commands_of_the_guide(helm: Helm) -> None:
    notes = _notes(helm, "sharing.sell=gpus")
    for command in (
        "kubectl get clusterpolicy", "kubectl get pod -n gpu-operator -o wide", "kubectl get runtimeclass",
        r"-o=custom-columns='NAME:.metadata.name,GPU:.status.allocatable.nvidia\.com/gpu'",
        "helm test gpu-operator -n gpu-operator",
    ):  # fmt: skip
        assert command in notes
    assert "install-scheduler" not in notes
    assert "gpushare install-scheduler" in _notes(helm, "scheduler.mode=extender")
    assert "aliyun.com/gpu-mem: 4}" in _notes(helm, "sharing.memoryUnit=GiB")
    assert "pod-security.kubernetes.io/enforce=privileged" in _notes(helm, "psa.enabled=false")


def test_no_line_of_the_notes_is_broken_by_a_terminal(helm: Helm) -> None:
    lines = _notes(helm, "psa.enabled=false,nfd.enabled=false,scheduler.mode=extender").splitlines()
    assert max(map(len, lines)) <= 120
    assert "\n\n\n" not in "\n".join(lines)


def _notes(helm: Helm, settings: str) -> str:
    """helm shows them only where there is a cluster, so here they are the text of an object."""
    with tempfile.TemporaryDirectory() as folder:
        chart = Path(folder) / "gpushare"
        shutil.copytree(charts.CHART, chart)
        notes = chart / "templates" / "NOTES.txt"
        (chart / "templates" / "_notes.tpl").write_text(f'{{{{ define "notes" }}}}{notes.read_text()}{{{{ end }}}}')
        (chart / "templates" / "notes.yaml").write_text('{kind: Notes, text: {{ include "notes" . | toJson }}}')
        notes.unlink()
        (document,) = helm.template("--set", settings, "--show-only", "templates/notes.yaml", chart=chart)
    return str(document["text"])


def _shown(documents: list[Object]) -> list[Object]:
    return [one for one in documents if not (_name(one).startswith("gpushare-operator") and "Role" in one["kind"])]


def _name(document: Object) -> str:
    return str(document["metadata"]["name"])
