"""The kind GPUNode in the cluster, as deploy/crds has it, for as long as a test needs it."""

import contextlib
from collections.abc import AsyncIterator

from gpushare.core.facts import vitals
from tests.e2e.harness import shipped
from tests.e2e.harness.cluster import Cluster

FOLDER = shipped.DEPLOY / "crds"
PATH = f"/apis/{vitals.GROUP}/{vitals.VERSION}/{vitals.PLURAL}"


@contextlib.asynccontextmanager
async def installed(cluster: Cluster) -> AsyncIterator[None]:
    """Afterwards it is deleted, with all GPUNodes."""
    await cluster.kubectl("apply", "-f", FOLDER)
    await cluster.kubectl("wait", "--for=condition=Established", f"crd/{vitals.PLURAL}.{vitals.GROUP}", "--timeout=20s")
    try:
        yield
    finally:
        await cluster.kubectl("delete", "-f", FOLDER)
