"""MPS replicas of `gpushare node --sell=gpus` on a real kubelet: equal parts, and sold only while the daemon works.

The supervisor is deploy/mps-ds.yaml; the control program and the driver are stand-ins.
"""

from tests.e2e.harness import mps
from tests.e2e.harness.kubelet import Node
from tests.e2e.harness.selling import SellingWorld
from tests.support import pod_watch
from tests.support.api_client import Api
from tests.support.tasks import beside

GPUS = [16384, 40960]  # MiB
REPLICAS = 4
CONFIG = f"version: v1\nsharing: {{mps: {{resources: [{{name: nvidia.com/gpu, replicas: {REPLICAS}}}]}}}}"
PIPES = "/mps/nvidia.com/gpu/pipe"


async def test_replicas_share_gpus_by_mps_and_are_withdrawn_while_the_daemon_hangs(node: Node, api: Api) -> None:
    everything = REPLICAS * len(GPUS)
    shown = pod_watch.PodWatch(api)
    async with mps.selling(node, GPUS, {"default": CONFIG}) as installation, beside(shown.run()):
        world = SellingWorld(installation, api, shown)
        await installation.sells(everything)
        assert installation.program.told == [
            "set_default_device_pinned_mem_limit 0 4096M",
            "set_default_device_pinned_mem_limit 1 10240M",
            "set_default_active_thread_percentage 25",
        ]
        await world.run({"name": "client", "containers": {"main": {"nvidia": 1}}})
        assert (await world.environment("client"))["CUDA_MPS_PIPE_DIRECTORY"] == PIPES
        there = await world.cluster.kubectl("exec", f"--namespace={api.namespace}", "client", "--", "ls", PIPES)
        assert "nvidia-cuda-mps-control.pid" in there.split()
        installation.program.behave("hang")
        await installation.sells(0, of=everything)
        installation.program.behave()
        await installation.sells(everything)
        told = (await world.cluster.get("/api/v1/events?fieldSelector=reason=MpsDaemonLost"))["items"]
        assert "client" in {event["involvedObject"]["name"] for event in told}
        await world.delete("client")
        assert installation.program.wrong == []
