"""The page of a running node: what is held and what goes wrong appears there, on the port for Prometheus too."""

import aiohttp

from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.gpu.device import Xid
from gpushare.gpu.simulated import Simulated
from gpushare.kube.scraping.server import Listening
from gpushare.node import observer
from gpushare.node.exporter.exporter import Config
from tests.node import world
from tests.node.world import CONFIG, bound, capacity, running
from tests.support import embedded_objects
from tests.support.wait import eventually, until

OBSERVING = observer.Config(sample_seconds=0.02, exporter=Config(Listening("127.0.0.1", 0)))


async def test_prometheus_reads_what_is_held_and_what_the_driver_reports(server: ApiServer, gpus: Simulated) -> None:
    async with running(server.url, gpus, CONFIG._replace(observing=OBSERVING)) as node:
        await until(server, lambda: capacity(server) == ("27454", "2"))
        bound(server, "train", 1000, on="GPU-1")
        gpus.report(Xid("GPU-0", 31))

        def shows(line: str) -> bool:
            return line in node.exporter.page()[0].decode()

        of = f'node="{world.NAME}",gpu='
        await eventually(lambda: shows(f'gpushare_gpu_memory_granted_bytes{{{of}"1",UUID="GPU-1"}} {1000 << 20}\n'))
        await eventually(lambda: shows(f'gpushare_xid_errors_total{{{of}"0",UUID="GPU-0",xid="31"}} 1\n'))
        assert shows("DCGM_FI_DEV_GPU_UTIL{")
        assert node.server is not None
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{node.server.port}/metrics") as response,
        ):
            assert "\ngpushare_gpu_shares{" in await response.text()


async def test_nvidias_names_go_when_its_exporter_comes(server: ApiServer, gpus: Simulated) -> None:
    async with running(server.url, gpus, CONFIG._replace(observing=OBSERVING)) as node:
        await eventually(lambda: b"DCGM_FI_DEV_GPU_UTIL{" in node.exporter.page()[0])
        exporter = embedded_objects.pod("dcgm")
        exporter["metadata"]["labels"] = {"app": "nvidia-dcgm-exporter"}
        exporter["spec"] |= {"nodeName": world.NAME, "containers": [{"name": "exporter", "image": "dcgm-exporter"}]}
        embedded_objects.create(server, exporter)
        embedded_objects.set_status(server, "dcgm", phase="Running")
        await eventually(lambda: b"DCGM" not in node.exporter.page()[0])
        assert b"gpushare_gpu_healthy{" in node.exporter.page()[0]
