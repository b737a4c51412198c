"""Several control planes: the extender over TLS, with certificates made as docs/install-manifests.md says."""

import ssl
from pathlib import Path

import aiohttp
import pytest

from tests.e2e.harness import over_tls
from tests.e2e.harness.figures import Figures
from tests.e2e.harness.world import World


async def test_a_scheduler_asks_over_tls_and_nobody_asks_without_a_certificate(
    world: World, figures: Figures, tmp_path: Path
) -> None:
    await world.make_nodes(2, gpus=[8000])
    async with over_tls.extender(world.cluster, tmp_path) as extender:
        async with world.cluster.scheduler(extenders=[extender.entry]):
            pods = await world.make_pods(*({"name": f"pod-{i}", "containers": {"main": 8000}} for i in range(2)))
            await world.watch.until_bound(*pods, seconds=20)
        world.check_capacity()
        await _check_no_stranger_is_answered(extender.address, tmp_path / "ca.crt")
    figures.say("over TLS", "certificates by the guide, the manifest's probe, 2 pods placed; strangers not answered")


async def _check_no_stranger_is_answered(address: str, ca: Path) -> None:
    trusting = ssl.create_default_context(cafile=str(ca))
    trusting.check_hostname = False
    async with aiohttp.ClientSession() as session:
        with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
            await session.get(f"{address}/metrics", ssl=trusting)
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"{address.replace('https', 'http')}/metrics")
