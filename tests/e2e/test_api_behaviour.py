"""The behaviour tests of the embedded API server, the very same functions, against the real one: neither may drift."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.contracts.api import (
    test_api_behaviour,
    test_api_behaviour_lists,
    test_api_behaviour_pods,
    test_api_behaviour_workloads,
)
from tests.e2e.harness.cluster import Cluster


@pytest.fixture(scope="module", autouse=True)
def node_1(cluster: Cluster) -> Iterator[None]:
    """What these tests bind pods to: were it not there, the cluster would take such pods away in the middle."""
    asyncio.run(cluster.call("POST", "/api/v1/nodes", {"metadata": {"name": "node-1"}}))
    yield
    asyncio.run(cluster.call("DELETE", "/api/v1/nodes/node-1"))


for _module in (
    test_api_behaviour,
    test_api_behaviour_lists,
    test_api_behaviour_pods,
    test_api_behaviour_workloads,
):
    for _name, _test in vars(_module).items():
        if _name.startswith("test_") and callable(_test):
            assert _name not in globals(), f"two tests are called {_name}: one would be lost"
            globals()[_name] = _test
