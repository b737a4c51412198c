"""The kind GPUNode in the cluster, as deploy/crds has it, for as long as a test needs it."""

import contextlib
from collections.abc import AsyncIterator

import aiohttp

from gpushare.core.facts import vitals
from tests.e2e.harness import shipped
from tests.e2e.harness.cluster import Cluster
from tests.support import wait

FILE = shipped.DEPLOY / "crds" / "gpunodes.yaml"
PATH = f"/apis/{vitals.GROUP}/{vitals.VERSION}/{vitals.PLURAL}"
PATIENCE = 20.0


@contextlib.asynccontextmanager
async def installed(cluster: Cluster) -> AsyncIterator[None]:
    """Afterwards it is deleted, with all GPUNodes."""
    await cluster.kubectl("apply", "-f", FILE)
    await wait.eventually_asked(lambda: _is_served(cluster), "GPUNodes are served", PATIENCE)
    try:
        yield
    finally:
        await cluster.kubectl("delete", "-f", FILE)


async def _is_served(cluster: Cluster) -> bool:
    with contextlib.suppress(aiohttp.ClientResponseError):
        await cluster.get(PATH)
        return True
    return False
