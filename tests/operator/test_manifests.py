"""The manifests come with the package, and nobody can spoil them for others."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from gpushare.operator import manifests as loading
from gpushare.operator.desired import whole
from gpushare.operator.desired.component import Object
from tests.e2e.harness import images
from tests.support import manifests, policies

LIMIT_SECONDS = 120


def test_what_is_loaded_is_what_people_apply() -> None:
    for file in ("node-ds.yaml", "crds/gpunodes.yaml", "monitoring/podmonitor.yaml"):
        assert loading.load(file) == manifests.documents(file)


def test_each_call_makes_new_documents() -> None:
    loading.load("node-ds.yaml")[0]["metadata"].clear()
    assert loading.load("node-ds.yaml") == manifests.documents("node-ds.yaml")


def test_manifests_beside_the_package_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "only-here.yaml").write_text("{kind: A}\n---\n{kind: B}\n")
    monkeypatch.setattr(loading, "PACKAGED", tmp_path)
    assert [one["kind"] for one in loading.load("only-here.yaml")] == ["A", "B"]


def test_the_wheel_has_every_manifest_that_a_policy_can_ask_for(tmp_path: Path) -> None:
    asked: set[str] = set()

    def recorded(name: str) -> list[Object]:
        asked.add(name)
        return loading.load(name)

    for said in policies.POLICIES.values():
        whole.desired(policies.spec(said), policies.CLUSTER, recorded)
    wanted = {f"gpushare/manifests/{name}" for name in (*asked, "crds/clusterpolicies.yaml")}
    build = "import sys; from hatchling.build import build_wheel; build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, tmp_path], cwd=manifests.ROOT, check=True, timeout=LIMIT_SECONDS)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as content:
        there = set(content.namelist())
        assert wanted - there == set()
        for name in wanted:
            assert list(yaml.safe_load_all(content.read(name))) == manifests.documents(
                name.removeprefix("gpushare/manifests/")
            )
    assert "gpushare/cli/__init__.py" in there
    assert not [name for name in there if name.startswith(("deploy/", "src/"))]
    assert not [name for name in there if "/keti/" in name or name.endswith(".sh")]


def test_the_image_is_built_with_them() -> None:
    assert "\nCOPY deploy deploy\n" in (manifests.ROOT / "Dockerfile").read_text("utf-8")
    assert "\n!deploy\n" in (manifests.ROOT / ".dockerignore").read_text("utf-8")


def test_the_image_is_made_again_when_a_manifest_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (".build", "src", "deploy"):
        (tmp_path / folder).mkdir()
    for name in ("pyproject.toml", "requirements.lock", "deploy/a.yaml"):
        (tmp_path / name).write_text("before")
    made: list[Path] = []

    def make(root: Path) -> None:
        made.append(root)
        (root / ".build" / "image.tar").touch()

    monkeypatch.setattr(images, "_make", make)
    for text in ("before", "before", "after"):
        (tmp_path / "deploy/a.yaml").write_text(text)
        images.product(tmp_path)
    assert made == [tmp_path, tmp_path]
