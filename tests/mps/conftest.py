"""Fixtures: `node` has MPS, with a stand-in for the driver and for the control program; pauses are short."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpushare.mps import daemon, supervisor
from tests.mps.world import Node


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setattr(supervisor, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(supervisor, "MODES_SECONDS", 0.2)
    monkeypatch.setattr(supervisor, "RETRY_SECONDS", (0.05, 0.2))
    monkeypatch.setattr(daemon, "TICK", 0.05)
    with tempfile.TemporaryDirectory(prefix="gpushare-") as folder:  # paths of sockets are short
        made = Node(Path(folder))
        yield made
        assert made.program.wrong == [], "the real program would not have taken that"
