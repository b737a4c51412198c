"""`gpushare mps`: its options. As in `commands`, the component is imported when it runs."""

import os
import signal
from pathlib import Path

from gpushare.cli import components
from gpushare.cli.words import Parser
from gpushare.obs import errors

PORT = "12349"


def mps(words: list[str], program: str, plugin: bool) -> int:
    parser = Parser(program)
    parser.add_argument("--node-name", default=os.environ.get("NODE_NAME", ""))
    parser.add_argument("--restore", action="store_true")
    parser.add_argument("--listen", default="127.0.0.1")
    parser.add_argument("--port", default=PORT)
    parser.add_argument("--log-level", default="info")
    components.add_fail_on_init_error(parser)
    args = parser.parse(words)

    import asyncio

    from gpushare.kube.auth import login
    from gpushare.mps import app
    from gpushare.mps.files import Places
    from gpushare.obs import log

    if args.restore:
        log.setup((os.environ.get("LOG_LEVEL") or args.log_level).lower())
        asyncio.run(app.restore(Places()))
        return 0
    name, address, port = components.identity(args, PORT)
    access = login.load(args.kubeconfig, args.context, os.environ, Path.home())
    fails = components.fails_on_init_error(args)
    ended = asyncio.run(app.run(app.Config(name, address, port, fail_on_init_error=fails), access))
    return errors.INTERRUPTED if ended is signal.SIGINT else 0
