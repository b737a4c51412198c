"""`gpushare operator` on a real API server, without kubelet: what it writes, when, and what is left at the end."""

from collections.abc import AsyncIterator

import pytest

from gpushare.core.facts import names
from tests.e2e.harness import operating
from tests.e2e.harness.cluster import Cluster
from tests.e2e.harness.operating import DAEMON_SETS, POLICY, Operating


@pytest.fixture
async def operator(cluster: Cluster) -> AsyncIterator[Operating]:
    async with operating.prepared(cluster) as made:
        yield made


async def test_from_a_policy_to_objects_labels_and_a_status_and_back(operator: Operating) -> None:
    await operator.node("loop-a")
    before = await operator.made()
    async with operator.running():
        await operator.policy()

        async def labelled() -> bool:
            return (await operator.labels("loop-a")).get(names.GPU_PRESENT) == "true"

        await operator.until("the node is labelled", labelled)

        async def said() -> bool:
            return "validator: loop-a: its checks have no result yet" in await operator.message()

        await operator.until("the status says what is missing", said)
        print(await operator.cluster.kubectl("get", "clusterpolicy", POLICY, "-o", "yaml"))
        assert await operator.find(f"{DAEMON_SETS}/gpushare-node") is not None
        await operator.delete()
        await operator.gone()
    assert await operator.made() == before
    labels = await operator.labels("loop-a")
    assert labels == operating.GPU
    await operator.cluster.kubectl("delete", "node", "loop-a")
