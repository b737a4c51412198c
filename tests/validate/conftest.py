"""Fixture: a `machine` whose driver, where one is installed, is the stand-in for NVIDIA's library."""

from pathlib import Path

import pytest

from tests.support.nvml import build
from tests.validate.machine import Machine


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    try:
        build.cached()
    except build.NotBuilt as missing:
        pytest.fail(str(missing), pytrace=False)
    made = Machine(tmp_path)
    for key, value in made.environment.items():
        monkeypatch.setenv(key, value)
    return made
