"""Fixtures: `server` is the embedded API server with one node that has nothing of ours yet; time is short."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.gpu.simulated import Simulated
from gpushare.kubelet import paths
from tests.node import world
from tests.support import embedded_objects


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    world.hasten(monkeypatch)


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder for sockets, whose paths have at most 107 characters."""
    with tempfile.TemporaryDirectory(prefix="gpushare-") as folder:
        yield Path(folder)


@pytest.fixture
def kubelet(short_path: Path) -> Path:
    """kubelet's root folder, without a kubelet."""
    (short_path / paths.DEVICE_PLUGINS).mkdir()
    return short_path


@pytest.fixture
async def server(quick: None) -> AsyncIterator[ApiServer]:
    async with ApiServer(bookmark_seconds=0.05, nodes_copy_capacity=True) as server:
        embedded_objects.create(server, world.node())
        yield server


@pytest.fixture
def gpus() -> Simulated:
    return Simulated(world.devices(*world.SIZES))
