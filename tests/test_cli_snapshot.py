"""`gpushare snapshot` on the command line, and the two commands that try policies on one's own cluster."""

import asyncio
import json
from pathlib import Path

import pytest

from gpushare import cli
from gpushare.cli.traces import snapshotting
from tests.support import api_client, embedded_cluster
from tests.support.api_client import Api


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No cluster, but one that is named."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def error(capsys: pytest.CaptureFixture[str], *words: str, code: int = 2) -> list[str]:
    """What, why and way of a line that is not accepted. Nothing is on stdout then."""
    assert cli.main(["snapshot", *words]) == code
    out, err = capsys.readouterr()
    assert out == ""
    return [line[7:] for line in err.splitlines()]


def test_its_help_fits_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["snapshot", "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 24
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["-o", "xml"], 'unknown output format "xml"'),
        (["-o", "csv"], "-o csv needs --nodes"),
        (["--nodes", "nodes.csv"], "--nodes goes with -o csv only"),
        (["node-1"], 'unexpected word "node-1"'),
    ],
)
def test_words_that_are_not_understood(capsys: pytest.CaptureFixture[str], words: list[str], what: str) -> None:
    assert error(capsys, *words)[0] == what


def test_without_a_cluster_nothing_is_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    table = tmp_path / "nodes.csv"
    assert error(capsys, "-o", "csv", "--nodes", str(table), code=3)[0] == "no kubeconfig found"
    assert not table.exists()


async def _fill(api: Api) -> None:
    for number, amount in enumerate((4000, 4000, 9000, 12000, 60000)):
        await api.create(api.pods, api_client.pod(f"secret-{number}", amount=amount))
    await api.bind("secret-0", "gpu-a")


async def test_two_commands_try_policies_on_a_live_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cluster.json"
    async with embedded_cluster.cluster(tmp_path) as (dev, api):
        await _fill(api)
        assert await asyncio.to_thread(cli.main, ["snapshot", f"--kubeconfig={dev.kubeconfig}"]) == 0
        left_out = f"{api.namespace}/secret-4"
    out, err = capsys.readouterr()
    counts, without = err.splitlines()
    assert counts == "note: 2 nodes, 4 GPUs, 4 pods."
    assert without == f"note: {snapshotting.LEFT_OUT.format(pods='1 pod')}: {left_out}"
    file.write_text(out)
    assert cli.main(["replay", str(file), "--policy", "binpack,spread"]) == 0
    table = capsys.readouterr().out
    assert "binpack" in table
    assert "spread" in table


async def test_hashed_names_leave_nothing_of_the_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "nodes.csv"
    words = ["snapshot", "-o", "csv", "--nodes", str(table), "--hash-names"]
    async with embedded_cluster.cluster(tmp_path) as (dev, api):
        await _fill(api)
        assert await asyncio.to_thread(cli.main, [*words, f"--kubeconfig={dev.kubeconfig}"]) == 0
        namespace = api.namespace
    out, err = capsys.readouterr()
    written = out + err + table.read_text()
    assert not [name for name in ("secret", namespace, "gpu-a", "gpu-b") if name in written]
    pods = tmp_path / "pods.csv"
    pods.write_text(out)
    assert cli.main(["replay", str(pods), "--nodes", str(table), "--policy", "binpack", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)


async def test_a_cluster_without_gpus_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with embedded_cluster.cluster(tmp_path) as (dev, api):
        for node in ("gpu-a", "gpu-b"):
            await api.call("DELETE", f"/api/v1/nodes/{node}")
        words = ["snapshot", f"--kubeconfig={dev.kubeconfig}"]
        assert await asyncio.to_thread(cli.main, words) == 2
    assert capsys.readouterr().err.startswith("error: this cluster has no GPUs\n")


@pytest.mark.parametrize(("nodes", "why"), [("missing/nodes.csv", "no such file or directory"), (".", "busy")])
async def test_a_table_that_cannot_be_written_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, nodes: str, why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["snapshot", "-o", "csv", "--nodes", nodes]
    async with embedded_cluster.cluster(tmp_path) as (dev, api):
        await _fill(api)
        assert await asyncio.to_thread(cli.main, [*words, f"--kubeconfig={dev.kubeconfig}"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert why in err
