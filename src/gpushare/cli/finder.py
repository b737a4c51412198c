"""`gpushare finder`: its options and its page. As in `commands`, the component is imported when it runs."""

import os
import signal
from pathlib import Path
from typing import Final

from gpushare.cli import components
from gpushare.cli.words import Parser
from gpushare.obs import errors

PORT: Final = "12351"

PAGE: Final = """\
usage: gpushare finder [options]
Looks for NVIDIA's GPUs among the PCI devices of its node, and labels the node:
feature.node.kubernetes.io/pci-10de.present=true, and the same with the class
(pci-0302_10de, pci-0300_10de). It needs no driver and no root. Where
node-feature-discovery runs, it tells that program by a NodeFeature.
  --node-name NAME    the node it runs on; default NODE_NAME
  --sysfs DIR         where this machine's /sys is (default /sys)
  --listen ADDRESS, --port N
                      for /healthz, /readyz, /metrics (127.0.0.1, 12351)
  --log-level LEVEL   debug, info (default), warn, error; LOG_LEVEL wins
  --kubeconfig FILE, --context NAME, --color auto|always|never, --debug
Variables: POD_NAMESPACE, POD_NAME: where a NodeFeature is made, and its owner
Examples
  gpushare finder --node-name gpu-a
Exit codes: 0 after SIGTERM, 2 bad input, 3 PCI devices cannot be seen"""


def finder(words: list[str], program: str, plugin: bool) -> int:
    parser = Parser(program)
    parser.add_argument("--node-name", default=os.environ.get("NODE_NAME", ""))
    parser.add_argument("--sysfs", default="/sys")
    parser.add_argument("--listen", default="127.0.0.1")
    parser.add_argument("--port", default=PORT)
    parser.add_argument("--log-level", default="info")
    args = parser.parse(words)
    name, address, port = components.identity(args, PORT)

    import asyncio

    from gpushare.kube.auth import login
    from gpushare.node.finder import app

    access = login.load(args.kubeconfig, args.context, os.environ, Path.home())
    namespace = os.environ.get("POD_NAMESPACE") or "kube-system"
    config = app.Config(name, args.sysfs, address, port, namespace, os.environ.get("POD_NAME", ""))
    ended = asyncio.run(app.run(config, access))
    return errors.INTERRUPTED if ended is signal.SIGINT else 0
