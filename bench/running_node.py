"""The node component with simulated GPUs as a process of its own. Started by `bench.started`.

All of `gpushare node` but the command line and the driver. Imports nothing else: its memory is measured.
"""

import asyncio
import os
import sys
from pathlib import Path

from gpushare.gpu.simulated import Simulated, device
from gpushare.kube.auth import login
from gpushare.node import app
from gpushare.node.pinning import Choice
from gpushare.obs import log


def main(kubeconfig: str, node: str, pin: Choice, kubelet: str, mib: str, *uuids: str) -> None:
    log.setup("info")
    access = login.load(kubeconfig, None, os.environ, Path.home())
    gpus = Simulated(device(i, uuid, int(mib)) for i, uuid in enumerate(uuids))
    asyncio.run(app.run(app.Config(node, "MiB", pin, port=0, kubelet=kubelet), access, gpus))


if __name__ == "__main__":
    main(*sys.argv[1:])  # type: ignore[arg-type]
