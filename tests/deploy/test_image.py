"""The image is a docker-archive that depends on its files alone, with what runs and nothing else."""

import hashlib
import json
import os
import tarfile
from pathlib import Path

import pytest

from tests.support import manifests
from tools import archive, image, runtime_lock

LOCK = """\
aiohttp==3.14.5 \\
    --hash=sha256:aa \\
    --hash=sha256:ab
    # via gpushare (pyproject.toml)
attrs==26.1.0 \\
    --hash=sha256:ba
    # via
    #   aiohttp
    #   hypothesis
hypothesis==6.1 \\
    --hash=sha256:ca
    # via gpushare (pyproject.toml)
prometheus-client==0.26.0 \\
    --hash=sha256:da
    # via gpushare (pyproject.toml)
sortedcontainers==2.4.0 \\
    --hash=sha256:ea
    # via hypothesis
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    made = tmp_path / "tree"
    for folder in ("etc", "proc/1", "usr/bin", "usr/share/doc/x", "var/lib/dpkg"):
        (made / folder).mkdir(parents=True)
    (made / "etc/hostname").write_text("here")
    (made / "etc/passwd").write_text("root")
    (made / "etc/passwd-").write_text("old")
    (made / "usr/bin/python3").write_text("#!")
    (made / "usr/bin/python3").chmod(0o755)
    (made / "usr/bin/python").symlink_to("python3")
    (made / "proc/1/status").write_text("of this machine")
    (made / "usr/share/doc/x/copyright").write_text("long")
    return made


def test_the_same_files_give_the_same_bytes(tree: Path, tmp_path: Path) -> None:
    archive.layer(tree, tmp_path / "first.tar")
    os.utime(tree / "etc/passwd", (1, 1))
    (tree / "etc/passwd").rename(tree / "etc/other")
    (tree / "etc/other").rename(tree / "etc/passwd")
    archive.layer(tree, tmp_path / "second.tar")
    assert (tmp_path / "first.tar").read_bytes() == (tmp_path / "second.tar").read_bytes()


def test_what_is_mounted_later_is_there_and_empty(tree: Path, tmp_path: Path) -> None:
    archive.layer(tree, tmp_path / "layer.tar", leave_out=image.MOUNTED)
    with tarfile.open(tmp_path / "layer.tar") as tar:
        entries = {entry.name: entry for entry in tar}
    assert entries["proc"].isdir()
    assert "proc/1" not in entries
    assert entries["usr/bin/python"].linkname == "python3"
    assert entries["usr/bin/python3"].mode == 0o755
    assert {entry.mtime for entry in entries.values()} == {0}


def test_a_layer_of_some_folders_has_those_above_them(tree: Path, tmp_path: Path) -> None:
    archive.layer(tree, tmp_path / "layer.tar", folders=("usr/bin", "etc/passwd"))
    with tarfile.open(tmp_path / "layer.tar") as tar:
        assert tar.getnames() == ["etc", "etc/passwd", "usr", "usr/bin", "usr/bin/python", "usr/bin/python3"]


def test_what_is_of_no_use_in_a_container_is_left_out(tree: Path) -> None:
    image.clean(tree)
    left = {str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file()}
    assert left == {"etc/passwd", "usr/bin/python3", "usr/bin/python", "proc/1/status"}


def test_the_archive_is_what_container_runtimes_import(tree: Path, tmp_path: Path) -> None:
    layers = [tmp_path / "base.tar", tmp_path / "top.tar"]
    archive.layer(tree, layers[0])
    archive.layer(tree, layers[1], folders=("usr/bin",))
    archive.docker_archive(tmp_path / "image.tar", "gpushare:1", layers, image.SETTINGS, "amd64")
    with tarfile.open(tmp_path / "image.tar") as tar:
        content = {entry.name: _bytes(tar, entry) for entry in tar}
    (listed,) = json.loads(content["manifest.json"])
    assert listed["RepoTags"] == ["gpushare:1"]
    assert [content[name] for name in listed["Layers"]] == [layer.read_bytes() for layer in layers]
    assert listed["Config"] == hashlib.sha256(content[listed["Config"]]).hexdigest() + ".json"
    config = json.loads(content[listed["Config"]])
    assert config["rootfs"]["diff_ids"] == [
        "sha256:" + hashlib.sha256(layer.read_bytes()).hexdigest() for layer in layers
    ]
    assert config["config"]["Entrypoint"] == ["/usr/local/bin/gpushare"]


def test_it_runs_as_the_user_the_manifests_say() -> None:
    pod = manifests.one("extender.yaml", "Deployment")["spec"]["template"]["spec"]
    user = f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}"
    assert image.SETTINGS["User"] == user
    assert f"USER {user}\n" in (manifests.ROOT / "Dockerfile").read_text("utf-8")


def test_only_what_runs_is_taken_from_the_lock() -> None:
    taken = runtime_lock.part(LOCK, ["aiohttp", "prometheus_client"])
    assert [line for line in taken.splitlines() if "==" in line] == [
        "aiohttp==3.14.5 \\",
        "attrs==26.1.0 \\",
        "prometheus-client==0.26.0 \\",
    ]
    assert taken.count("--hash") == 4


def test_a_package_that_is_not_locked_is_missed() -> None:
    with pytest.raises(LookupError, match=r"requirements\.lock has no grpcio"):
        runtime_lock.part(LOCK, ["grpcio"])


def test_the_lock_has_all_that_runs_and_the_image_none_of_the_rest() -> None:
    names = runtime_lock.runtime_names((manifests.ROOT / "pyproject.toml").read_text("utf-8"))
    taken = runtime_lock.part((manifests.ROOT / "requirements.lock").read_text("utf-8"), names)
    packages = {line.partition("==")[0] for line in taken.splitlines() if "==" in line}
    assert {"aiohttp", "msgspec", "prometheus-client", "pyyaml", "yarl"} <= packages
    assert not {"pytest", "mypy", "ruff", "hatchling", "hypothesis"} & packages


def _bytes(tar: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    content = tar.extractfile(entry)
    assert content is not None
    return content.read()
