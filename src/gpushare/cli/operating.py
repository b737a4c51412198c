"""`gpushare operator`: its options and its page. As in `commands`, the component is imported when it runs."""

import argparse
import os
import signal
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpushare.cli import components
from gpushare.cli.words import Parser, namespace
from gpushare.obs import errors

if TYPE_CHECKING:
    from gpushare.kube.client import Api

PORT: Final = "12347"

OPERATOR: Final = """\
usage: gpushare operator [options]
Keeps all of gpushare in the cluster as the ClusterPolicy asks: finds GPU nodes,
labels them, runs each component, puts back what is changed by hand, removes
what is switched off, and says in the policy's status what is wrong and where.
  --namespace NAME    where everything goes; default POD_NAMESPACE
  --image IMAGE       gpushare's own, for its parts; default OPERAND_IMAGE
  --pull-secret NAME  for that image; may be repeated; default
                      OPERAND_PULL_SECRETS, comma-separated
  --label-namespace   for pod security, so that parts on nodes may run there
  --install-crds      only apply the kind ClusterPolicy, and end
  --uninstall         only delete all policies and all that is theirs (itself
                      if no operator runs), then our kinds of objects, and end
  --keep-crds         with --uninstall: the kinds stay
  --listen ADDRESS, --port N
                      for /healthz, /readyz, /metrics (0.0.0.0, 12347)
  --log-level LEVEL   debug, info (default), warn, error; LOG_LEVEL wins
  --kubeconfig FILE, --context NAME, --color auto|always|never, --debug
Examples
  gpushare operator --namespace gpu-operator --image registry/gpushare:1.0
  gpushare operator --uninstall
Exit codes: 0 done or after SIGTERM, 2 bad input, 3 the cluster does not answer"""


def operator(words: list[str], program: str, plugin: bool) -> int:
    parser = Parser(program)
    parser.add_argument("--namespace", default=os.environ.get("POD_NAMESPACE"))
    parser.add_argument("--image", default=os.environ.get("OPERAND_IMAGE", ""))
    parser.add_argument("--pull-secret", action="append")
    parser.add_argument("--label-namespace", action="store_true")
    parser.add_argument("--install-crds", action="store_true")
    parser.add_argument("--uninstall", action="store_true")
    parser.add_argument("--keep-crds", action="store_true")
    parser.add_argument("--listen", default="0.0.0.0")
    parser.add_argument("--port", default=PORT)
    parser.add_argument("--log-level", default="info")
    args = parser.parse(words)
    if args.install_crds and args.uninstall:
        raise errors.UserError("two things at once", "--install-crds and --uninstall exclude each other", "give one")
    if args.keep_crds and not args.uninstall:
        raise errors.UserError("--keep-crds says nothing alone", "it goes with --uninstall", "--uninstall --keep-crds")

    from gpushare.obs import log

    log.setup((os.environ.get("LOG_LEVEL") or args.log_level).lower())
    if args.install_crds or args.uninstall:
        return _once(args)
    return _run(args)


def _once(args: argparse.Namespace) -> int:
    from gpushare.operator import crds, manifests, uninstall

    if args.install_crds:
        return _ask(args, lambda api: crds.install(api, manifests.load))
    return _ask(args, lambda api: uninstall.uninstall(api, args.namespace or "", keep=args.keep_crds))


def _ask(args: argparse.Namespace, work: "Callable[[Api], Coroutine[Any, Any, None]]") -> int:
    import asyncio

    from gpushare.kube import client, failures
    from gpushare.kube.auth import login
    from gpushare.kube.errors import KubeError

    access = login.load(args.kubeconfig, args.context, os.environ, Path.home())

    async def connected() -> None:
        async with client.connect(access) as api:
            try:
                await work(api)
            except KubeError as error:
                raise failures.explain(error, access) from error

    asyncio.run(connected())
    return 0


def _run(args: argparse.Namespace) -> int:
    import asyncio

    from gpushare.kube.auth import login
    from gpushare.operator import app, manifests
    from gpushare.operator.desired import whole
    from gpushare.operator.reconcile import Config

    if not args.namespace:
        why = "neither --namespace nor POD_NAMESPACE is given"
        raise errors.UserError("where does everything go?", why, "--namespace NAME, or POD_NAMESPACE")
    if not args.image:
        why = "neither --image nor OPERAND_IMAGE is given"
        raise errors.UserError("which image do its parts run?", why, "--image IMAGE, or OPERAND_IMAGE")
    address, port = components.listening(args, PORT)
    secrets = args.pull_secret or os.environ.get("OPERAND_PULL_SECRETS", "").split(",")
    where = namespace(args.namespace, "--namespace gpu-operator")
    work = Config(
        where, args.image, tuple(filter(None, secrets)), whole.desired, manifests.load, args.label_namespace
    )  # fmt: skip
    identity = f"{os.environ.get('POD_NAME') or socket.gethostname()}_{os.getpid()}"
    access = login.load(args.kubeconfig, args.context, os.environ, Path.home())
    ended = asyncio.run(app.run(app.Settings(identity, work, address, port), access))
    return errors.INTERRUPTED if ended is signal.SIGINT else 0
