"""`machine`: a node with two GPUs whose API server and file system are the test's own."""

from pathlib import Path

import pytest

from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.gpu.simulated import Simulated
from tests.node.nvidia import world


@pytest.fixture
def machine(short_path: Path, server: ApiServer, gpus: Simulated, monkeypatch: pytest.MonkeyPatch) -> world.Machine:
    world.hasten(monkeypatch)
    return world.Machine(short_path, server, gpus)
