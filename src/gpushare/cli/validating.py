"""`gpushare validate`: its two help pages, its options, and which of its ways is meant.

A report for people about the cluster or this machine, and what runs on nodes. As in `commands`, a component is imported
when it runs: an init container that only waits for a file starts at once.
"""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpushare.cli import commands, exporting
from gpushare.cli.words import Parser, name, unknown
from gpushare.ctl import streams
from gpushare.obs import errors

if TYPE_CHECKING:
    from gpushare.core.facts.intree import Node
    from gpushare.ctl.validate.command import Tried, Try
    from gpushare.validate import waiting
    from gpushare.validate.app import Config
    from gpushare.validate.machine.host import Places
    from gpushare.validate.telling import Telling
    from gpushare.view.connection import Connection

PAGE: Final = """\
usage: {program} [NODE...] [--pod] [-o wide|json|yaml]   or: --here
Says of each GPU node whether driver, toolkit or CDI, node part, MPS and a real
pod work, and what to do where something does not. gpushare-validator on the
nodes has looked; this reads what it found.
  NODE                only these nodes
  --pod               try a pod on these nodes now: it asks for the smallest
                      share, has to see exactly its GPU, and is deleted
  -n, --namespace NS  where that pod is made; default: the validator's
  --image IMAGE       gpushare's image for it; default: the validator's
  --scheduler-name S  who places it if it asks for shares (gpu-scheduler)
  --runtime-class C   of that pod; default: none
  --here              check driver and toolkit of this machine, now; no cluster
  --host-root DIR     where the machine's / is; default /host if it is there
  -o, --output FORMAT wide: found things, too; json, yaml: for programs
  --kubeconfig FILE, --context NAME, --color auto|always|never, --debug
What runs on nodes (--keep, --wait-for): {program} --keep --help
Examples
  {program} gpu-a --pod
  {program} --here
Exit codes: 0 all good, 1 something failed, 2 bad input, 3 could not ask"""

ON_NODE: Final = """\
usage: {program} --keep | --wait-for LIST | --inside       (on a node)
  --keep              check again and again; keep a file for each check that has
                      passed in /run/nvidia/validations, say how it is in the
                      node's annotation gpushare.io/validation, and in events
  --wait-for LIST     driver, toolkit, plugin or workload, comma-separated: end
                      when these have passed (an init container)
  --inside            say what a container sees (the pod that is tried)
With --keep
  --node-name NAME    the node it runs on; default NODE_NAME
  --host-root DIR     where the machine's / is mounted (/host if it is there)
  --real-root DIR     what is mounted there (/)
  --driver-root DIR   root of a driver container (/run/nvidia/driver)
  --toolkit-dir DIR   where a toolkit container installs (/usr/local/nvidia)
  --image IMAGE       of the pod; default OPERAND_IMAGE, else that of POD_NAME
  --scheduler-name S, --runtime-class C    of the pod with a share
  --metrics-listen ADDRESS   figures of NVIDIA's node-status-exporter (off)
  --listen ADDRESS, --port N for /healthz, /readyz, /metrics (127.0.0.1, 12352)
  --log-level LEVEL   debug, info (default), warn, error; LOG_LEVEL wins
  --kubeconfig FILE, --context NAME, --color auto|always|never, --debug
Exit codes: 0 passed or after SIGTERM, 1 failed, 2 bad input, 3 could not ask"""

WAYS: Final = ("--here", "--keep", "--wait-for", "--inside")
PORT: Final = "12352"
HOST: Final = "/host"
ENDED: Final = 128 + signal.SIGTERM  # an init container that was ended has not done its work


def on_node(words: Sequence[str]) -> bool:
    """Whether a way is meant that only a pod uses."""
    return any(name(word) in WAYS[1:] for word in words)


def validate(words: list[str], program: str, plugin: bool) -> int:
    args = _parser(program).parse(words)
    ways = [
        way
        for way, given in zip(WAYS, (args.here, args.keep, args.wait_for is not None, args.inside), strict=True)
        if given
    ]
    if len(ways) > 1:
        why = "each is a way of its own to use this command"
        raise errors.UserError(f"{' and '.join(ways)} do not go together", why, f"{program} --help")
    if ways and args.nodes:
        why = f"{ways[0]} is about the machine it runs on"
        raise errors.UserError(f'unexpected word "{args.nodes[0]}"', why, f"{program} {args.nodes[0]}")
    if args.wait_for is not None:
        return _wait(args)
    if args.inside:
        return _inside()
    if args.keep:
        return _keep(args)
    return _here(args) if args.here else _report(args, plugin)


def _parser(program: str) -> Parser:
    parser = Parser(program, "options and names of nodes")
    parser.add_argument("nodes", nargs="*")
    parser.add_argument("-o", "--output", default="")
    parser.add_argument("-n", "--namespace", default="")
    for switch in ("--pod", "--here", "--keep", "--inside"):
        parser.add_argument(switch, action="store_true")
    for option in ("--image", "--scheduler-name", "--runtime-class"):
        parser.add_argument(option, default="")
    parser.add_argument("--wait-for", default=None)
    parser.add_argument("--node-name", default=os.environ.get("NODE_NAME", ""))
    parser.add_argument("--host-root", default="")
    parser.add_argument("--real-root", default="/")
    parser.add_argument("--driver-root", default="/run/nvidia/driver")
    parser.add_argument("--toolkit-dir", default="/usr/local/nvidia")
    parser.add_argument("--listen", default="127.0.0.1")
    parser.add_argument("--port", default=PORT)
    parser.add_argument("--log-level", default="info")
    exporting.add_listening(parser)
    return parser


def _wait(args: argparse.Namespace) -> int:
    from gpushare.obs import log
    from gpushare.validate import waiting as waits
    from gpushare.validate.ready_files import OF_CHECK

    log.setup((os.environ.get("LOG_LEVEL") or args.log_level).lower())
    checks = [word.strip() for word in args.wait_for.split(",") if word.strip()]
    if not checks:
        why = "an empty list would let a container start although nothing is checked"
        raise errors.UserError("--wait-for names no check", why, f"--wait-for {','.join(OF_CHECK)}")
    for check in checks:
        if check not in OF_CHECK:
            raise unknown("check", check, tuple(OF_CHECK), "--wait-for {}")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(ENDED))  # the first process of a container has none
    waits.wait([(check, OF_CHECK[check]) for check in checks], args.node_name, _asking(args))
    return 0


def _asking(args: argparse.Namespace) -> "waiting.Asked":
    """Why it waits: asked only if it waits for long, because the client costs time to load."""
    kept: list[Telling] = []

    def ask(check: str) -> "waiting.Reason | None":
        if not args.node_name:
            return None
        if not kept:
            from gpushare.validate import telling

            kept.append(telling.Telling(args.node_name, os.environ.get("POD_NAME") or "a pod"))
        return kept[0].ask(check)

    return ask


def _inside() -> int:
    from gpushare.validate.machine import inside

    text, code = inside.run(os.environ)
    streams.write(sys.stdout, text)
    return code


def _places(args: argparse.Namespace) -> "Places":
    from gpushare.validate.machine.host import Places

    root = Path(args.host_root or (HOST if Path(HOST).is_dir() else "/"))
    if not root.is_dir():
        raise errors.UserError(f"there is no folder {root}", "--host-root is where the machine's / is", "--host-root /")
    return Places(root, args.real_root, args.driver_root, args.toolkit_dir)


def _here(args: argparse.Namespace) -> int:
    import asyncio
    import time

    from gpushare.ctl.validate import command
    from gpushare.validate import here

    commands.check_output(args)
    found = asyncio.run(here.look(_places(args)))
    return command.show_machine(found, args.output, commands.screen_of(args.color), time.time())


def _report(args: argparse.Namespace, plugin: bool) -> int:
    import time

    from gpushare.ctl.validate import command

    source, screen = commands.connected_to(args, plugin)
    options = command.Options(tuple(args.nodes), args.output)
    return command.run(options, source, screen, time.time(), _trying(args, source) if args.pod else None)


def _trying(args: argparse.Namespace, source: "Connection") -> "Try":
    import asyncio

    from gpushare.validate.workload import by_hand

    given = by_hand.Given(args.namespace, args.image, args.scheduler_name, args.runtime_class)

    def tried(nodes: "Sequence[Node]") -> "dict[str, Tried]":
        return dict(asyncio.run(by_hand.run(source.access, nodes, given)))

    return tried


def _keep(args: argparse.Namespace) -> int:
    import asyncio

    from gpushare.kube.auth import login
    from gpushare.validate import app

    config = _config(args)
    access = login.load(args.kubeconfig, args.context, os.environ, Path.home())
    ended = asyncio.run(app.run(config, access))
    return errors.INTERRUPTED if ended is signal.SIGINT else 0


def _config(args: argparse.Namespace) -> "Config":
    from gpushare.cli.components import identity
    from gpushare.validate import app
    from gpushare.validate.workload import trial

    node, address, port = identity(args, PORT)
    namespace = args.namespace or os.environ.get("POD_NAMESPACE", "")
    if not namespace:
        why = "neither --namespace nor POD_NAMESPACE is given"
        raise errors.UserError("where shall the pod be tried?", why, "POD_NAMESPACE from metadata.namespace")
    trying = trial.Config(
        node, namespace, os.environ.get("POD_NAME", ""), args.image or os.environ.get("OPERAND_IMAGE", ""),
        args.scheduler_name, args.runtime_class,
    )  # fmt: skip
    listen = exporting.listening(args, None)
    return app.Config(trying, _places(args), host=address, port=port, status_listen=listen)
