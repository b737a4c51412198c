"""What people type: words become options, and `ctl` or `demo` does the rest.

Each function imports what it needs when it is asked: `kubectl inspect gpushare` must not wait for an HTTP client it
never uses.
"""

import argparse
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
OUTPUTS = ("wide", "json", "yaml")


def inspect(words: list[str], program: str, plugin: bool) -> int:
    parser = _viewing(program, "names of nodes")
    parser.add_argument("nodes", nargs="*")
    parser.add_argument("-d", "--details", action="store_true")
    parser.add_argument("-w", "--watch", action="store_true")
    given = parser.parse(words)

    from gpushare.ctl.inspect import command

    source, screen = _looking(given, plugin)
    return command.run(command.Options(tuple(given.nodes), given.details, given.output, given.watch), source, screen)


def why(words: list[str], program: str, plugin: bool) -> int:
    parser = _viewing(program, "one pod")
    parser.add_argument("pod", nargs="?", default="")
    parser.add_argument("-n", "--namespace", default="")
    parser.add_argument("-f", "--filename", default="")
    parser.add_argument("--extender", default="")
    given = parser.parse(words)
    if bool(given.pod) == bool(given.filename):
        what = "a pod or a file, not both" if given.pod else "no pod is named"
        raise errors.UserError(what, f"{program} explains one pod, or those in a file", f"{program} POD, or -f FILE")

    import time

    from gpushare.ctl.why import command

    source, screen = _looking(given, plugin)
    options = command.Options(
        pod=given.pod,
        namespace=given.namespace,
        default_namespace="" if given.namespace else source.namespace(),
        filename=given.filename,
        output=given.output,
        extender=given.extender,
        program=program.removesuffix(" why"),
    )
    return command.run(options, source, screen, now=time.time(), stdin=sys.stdin)


def demo(words: list[str], program: str, plugin: bool) -> int:
    parser = Parser(program)
    parser.add_argument("--once", action="store_true")
    given = parser.parse(words)

    from gpushare.demo import app

    return app.run(_screen(given.color), once=given.once)


def _viewing(program: str, takes: str) -> Parser:
    parser = Parser(program, f"options and {takes}")
    parser.add_argument("-o", "--output", default="")
    return parser


def _looking(given: argparse.Namespace, plugin: bool) -> tuple["Direct | Kubectl", "Screen"]:
    """Where the cluster is read from, and where the answer goes. As kubectl's plugin we ask through kubectl."""
    from gpushare.view.direct import Direct
    from gpushare.view.kubectl import Kubectl

    if given.output not in ("", *OUTPUTS):
        raise unknown("output format", given.output, OUTPUTS, "-o {}")
    screen = _screen(given.color)
    kind = Kubectl if plugin else Direct
    return kind(given.kubeconfig, given.context, screen.waiting), screen


def _screen(color: str) -> "Screen":
    from gpushare.ctl.screen import COLORS, Screen

    if color not in COLORS:
        raise unknown("color mode", color, COLORS, "--color {}")
    return Screen.of(sys.stdout, sys.stderr, os.environ, color)
