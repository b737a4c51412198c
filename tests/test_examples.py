"""Every example runs in the demo's cluster, and ends as its first line says."""

import io
from pathlib import Path

import aiohttp
import pytest
import yaml

from gpushare.ctl.screen import Screen
from gpushare.demo import app
from gpushare.demo.terminal import Terminal
from gpushare.demo.world import PATHS, TooLong, World

FILES = sorted((Path(__file__).parent.parent / "examples").glob("*.yaml"))
EXAMPLES = {path: list(yaml.safe_load_all(path.read_text("utf-8"))) for path in FILES}
NEVER = {"giant", "probe"}  # what these are there to show
ONLY = {"shared": "gpu-c", "trainer": "gpu-c"}  # the node that sells what they ask, out of the ledger


def test_examples_are_numbered_and_begin_with_a_sentence() -> None:
    assert [int(path.name[:2]) for path in FILES] == list(range(1, len(FILES) + 1))
    for path in FILES:
        first = path.read_text("utf-8").splitlines()[0]
        assert first.startswith("# "), path
        assert len(first) <= 120, path


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
async def test_the_example_runs_in_the_demos_cluster(path: Path, tmp_path: Path) -> None:
    (given,) = EXAMPLES[path]
    name, spec = given["metadata"]["name"], given["spec"]
    pods = spec.get("replicas") or spec.get("parallelism") or 1
    terminal = Terminal(Screen(io.StringIO(), io.StringIO()), hurry=True)
    async with app.prepared(tmp_path, terminal, moment=0.05) as (world, _), aiohttp.ClientSession() as session:
        async with session.post(world.cluster.url + PATHS[given["kind"]], json=given) as response:
            assert response.status == 201, await response.text()
        if name in NEVER:
            await world.until("a sentence of ours", lambda: bool(_ours(world)))
            assert world.bound(name) == []
        else:
            try:
                await world.until_running(name, pods)
            except TooLong as error:
                raise AssertionError(f"{error}: {_late(world, name)}; {_logged(tmp_path)}") from None
            assert len(world.bound(name)) == pods
            places = world.places(world.bound(name))
            assert set(places) == {ONLY[name]} if name in ONLY else places


def _ours(world: World) -> list[str]:
    entries = world.cluster.server.store.shelf("events").entries.values()
    return [entry.key for entry in entries if entry.obj()["source"].get("component") == "gpushare"]


def _late(world: World, name: str) -> list[str]:
    """Those that do not run, and what their conditions say."""
    late = [pod for pod in world.pods(name) if pod.status.phase != "Running"]
    said = {pod.metadata.name: [c.message for c in pod.status.conditions or ()] for pod in late}
    return [f"{pod.metadata.name} on {pod.spec.node_name}: {said[pod.metadata.name]}" for pod in late]


def _logged(folder: Path) -> str:
    return "\n".join(file.read_text("utf-8")[-3000:] for file in sorted(folder.rglob("*.log")))
