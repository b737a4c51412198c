"""The commands for people: words become options, and `ctl` or `demo` does the rest.

Each function imports what it needs when it runs: `kubectl inspect gpushare` must not wait for an HTTP client that it
never uses.
"""

import argparse
import contextlib
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from gpushare.cli.words import Parser, unknown
from gpushare.obs import errors

if TYPE_CHECKING:
    from gpushare.ctl.screen import Screen
    from gpushare.view.direct import Direct
    from gpushare.view.kubectl import Kubectl

Command = Callable[[list[str], str, bool], int]  # words, the name it was called by, whether as kubectl's plugin


def inspect(words: list[str], program: str, plugin: bool) -> int:
    parser = _parser(program, "names of nodes")
    parser.add_argument("nodes", nargs="*")
    parser.add_argument("-d", "--details", action="store_true")
    parser.add_argument("-w", "--watch", action="store_true")
    args = parser.parse(words)

    from gpushare.ctl.inspect import command

    source, screen = connected_to(args, plugin)
    return command.run(command.Options(tuple(args.nodes), args.details, args.output, args.watch), source, screen)


def why(words: list[str], program: str, plugin: bool) -> int:
    parser = _parser(program, "one pod")
    parser.add_argument("pod", nargs="?", default="")
    parser.add_argument("-n", "--namespace", default="")
    parser.add_argument("-f", "--filename", default="")
    parser.add_argument("--extender", default="")
    parser.add_argument("--policy", default="")
    args = parser.parse(words)
    if bool(args.pod) == bool(args.filename):
        what = "a pod or a file, not both" if args.pod else "no pod is named"
        raise errors.UserError(what, f"{program} explains one pod, or those in a file", f"{program} POD, or -f FILE")

    from gpushare.core.facts import policies

    if args.policy and args.policy not in policies.POLICIES:
        raise unknown("policy", args.policy, tuple(policies.POLICIES), "--policy {}")

    import time

    from gpushare.ctl.why import command

    source, screen = connected_to(args, plugin)
    options = command.Options(
        pod=args.pod,
        namespace=args.namespace,
        default_namespace="" if args.namespace else source.namespace(),
        filename=args.filename,
        output=args.output,
        extender=args.extender,
        policy=args.policy,
        program=program.removesuffix(" why"),
    )
    return command.run(options, source, screen, now=time.time(), stdin=sys.stdin.buffer)


def top(words: list[str], program: str, plugin: bool) -> int:
    parser = _parser(program, "options only")
    parser.add_argument("--sort", default="used")
    args = parser.parse(words)

    from gpushare.ctl.formats import FOR_PROGRAMS
    from gpushare.ctl.top import command, keys
    from gpushare.ctl.top.rows import ORDERS

    if args.sort not in ORDERS:
        raise unknown("order", args.sort, tuple(ORDERS), "--sort {}")
    if args.output not in ("", *FOR_PROGRAMS):
        raise unknown("output format", args.output, FOR_PROGRAMS, "-o {}")
    source, screen = connected_to(args, plugin)
    drawn = screen.moves and not args.output
    pressed = keys.of_terminal() if drawn else contextlib.nullcontext(keys.Keys(None))
    return command.run(command.Options(args.sort, args.output), source, screen, pressed)


def demo(words: list[str], program: str, plugin: bool) -> int:
    parser = Parser(program)
    parser.add_argument("--once", action="store_true")
    args = parser.parse(words)

    from gpushare.demo import app

    return app.run(screen_of(args.color), once=args.once)


def _parser(program: str, takes: str) -> Parser:
    parser = Parser(program, f"options and {takes}")
    parser.add_argument("-o", "--output", default="")
    return parser


def connected_to(args: argparse.Namespace, plugin: bool) -> tuple["Direct | Kubectl", "Screen"]:
    """Where the cluster is read from, and where the answer goes. A kubectl plugin asks through kubectl."""
    check_output(args)
    screen = screen_of(args.color)
    if plugin:
        from gpushare.view.kubectl import Kubectl

        return Kubectl(args.kubeconfig, args.context, screen.waiting), screen
    from gpushare.view.direct import Direct

    return Direct(args.kubeconfig, args.context, screen.waiting), screen


def check_output(args: argparse.Namespace) -> None:
    from gpushare.ctl.formats import FORMATS

    if args.output not in ("", *FORMATS):
        raise unknown("output format", args.output, FORMATS, "-o {}")


def screen_of(color: str) -> "Screen":
    from gpushare.ctl.screen import COLORS, Screen

    if color not in COLORS:
        raise unknown("color mode", color, COLORS, "--color {}")
    return Screen.of(sys.stdout, sys.stderr, os.environ, color)
