"""Fixtures: `folder` is temporary, as tmp_path, but its name is short: below it there are sockets."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="demo-", dir="/tmp") as name:
        yield Path(name)
