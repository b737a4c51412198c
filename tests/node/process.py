"""`gpushare node` with GPUs that do not exist, as a process: `python -m tests.node.process KUBECONFIG MIB...`.

All but the command line and the driver is what runs on a real node.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from gpushare.gpu.simulated import Simulated
from gpushare.kube.auth import login
from gpushare.node import app, part
from gpushare.obs import errors, log
from tests.node import world


def main(kubeconfig: str, *sizes: str) -> int:
    log.setup("info")
    part.DRAIN_SECONDS = 1.0  # nobody is there to listen in the test that waits for it
    access = login.load(kubeconfig, None, os.environ, Path.home())
    gpus = Simulated(world.devices(*map(int, sizes)))
    try:
        ended = asyncio.run(app.run(world.CONFIG, access, gpus))
    except errors.UserError as error:
        print(error.render(), file=sys.stderr)
        return error.code
    return 0 if ended is signal.SIGTERM else 130


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
