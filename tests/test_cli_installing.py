"""`gpushare install-scheduler` on the command line, up to where a cluster is needed."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from gpushare.cli import installing, main
from gpushare.install import entries
from tests.install import texts
from tests.install.control_planes import ControlPlanes


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with kubeadm's manifest, and no way to a cluster."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / texts.NAME.lstrip("/")
    file.parent.mkdir(parents=True)
    file.write_bytes(texts.kubeadm())
    return tmp_path


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_dry_run_shows_the_diff_and_changes_nothing(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files(root)
    assert main(["install-scheduler", "--dry-run", f"--host-root={root}"]) == 0
    shown = capsys.readouterr()
    assert shown.out == texts.made(texts.kubeadm()).diff()
    assert shown.err == "dry run: nothing was changed\n"
    assert files(root) == before


def test_a_dry_run_of_a_revert_that_has_nothing_to_do_says_so(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install-scheduler", "--dry-run", "--revert", f"--host-root={root}"]) == 0
    assert capsys.readouterr() == ("", "nothing to do\n")


def test_without_a_cluster_nothing_is_changed(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files(root)
    assert main(["install-scheduler", f"--host-root={root}"]) == 3
    assert "no kubeconfig found" in capsys.readouterr().err
    assert files(root) == before


def test_a_revert_needs_no_cluster(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files(root)
    assert main(["install-scheduler", "--revert", f"--host-root={root}"]) == 0
    assert "nothing to revert" in capsys.readouterr().err
    assert files(root) == before


@pytest.mark.parametrize(
    ("word", "what"),
    [
        ("--extender-url=127.0.0.1:12345", "is not the URL of an extender"),
        ("--extender-url=http://127.0.0.1:12345", "is not the URL of an extender"),
        ("--extender-url=http://[::1/gpushare-scheduler", "is not the URL of an extender"),
        ("--extender-url=http://127.0.0.1:99999/gpushare-scheduler", "is not the URL of an extender"),
        ("--extender-url=http://127.0.0.1:12345/gpushare scheduler", "is not the URL of an extender"),
        ("--timeout=soon", "is not a time to wait"),
        ("--timeout=0", "is not a time to wait"),
        ("--manifest=kube-scheduler.yaml", "is not a whole path"),
        ("--kubernetes-version=new", "is not a version"),
    ],
)
def test_words_that_mean_nothing_are_refused(
    root: Path, word: str, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["install-scheduler", "--dry-run", f"--host-root={root}", word]) == 2
    assert what in capsys.readouterr().err


def test_the_default_url_is_the_one_of_the_shipped_configurations() -> None:
    assert entries.EXTENDER["urlPrefix"] == installing.URL


async def test_sigterm_puts_the_manifest_back(root: Path) -> None:
    """As when the Job is deleted while it waits."""
    planes = ControlPlanes(root)
    async with planes.serving():
        (root / texts.NAME.lstrip("/")).write_bytes(planes.plan.before)
        planes.add("cp-1", edited=False)  # kubelet never takes the new manifest up
        before = files(root)
        (root / "kubeconfig").write_text(
            f'{{"clusters": [{{"name": "c", "cluster": {{"server": "{planes.url}"}}}}], "current-context": "c",'
            ' "users": [], "contexts": [{"name": "c", "context": {"cluster": "c"}}]}'
        )
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "import sys; from gpushare.cli import main; sys.exit(main())", "install-scheduler",
            f"--host-root={root}", "--node-name=cp-1", f"--kubeconfig={root}/kubeconfig",
            f"--extender-url={planes.url}/gpushare-scheduler",
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stderr is not None
        while b"replaced" not in (line := await process.stderr.readline()):
            assert line, "it ended too early"
        process.send_signal(signal.SIGTERM)
        rest = await process.stderr.read()
        assert await process.wait() == 128 + signal.SIGTERM
    (root / "kubeconfig").unlink()
    assert b"put back" in rest
    assert files(root) == before
