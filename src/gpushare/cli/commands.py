"""The commands: their words become options, and the component does the rest.

Called by the package's `main`. Each function imports what it needs when it is asked: `kubectl inspect gpushare` must
not wait for an HTTP client it never uses.
"""

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpushare.cli.words import Parser, unknown
from gpushare.obs import errors

if TYPE_CHECKING:
    from gpushare.ctl.screen import Screen
    from gpushare.ctl.source import Direct, Kubectl

Command = Callable[[list[str], str, bool], int]  # words, the name it was called by, whether as kubectl's plugin
INTERRUPTED = 130
UNITS = ("MiB", "GiB")
OUTPUTS = ("wide", "json", "yaml")


def inspect(words: list[str], program: str, plugin: bool) -> int:
    parser = _viewing(program, "names of nodes")
    parser.add_argument("nodes", nargs="*")
    parser.add_argument("-d", "--details", action="store_true")
    parser.add_argument("-w", "--watch", action="store_true")
    given = parser.parse(words)

    from gpushare.ctl import inspect

    source, screen = _looking(given, plugin)
    return inspect.run(inspect.Options(tuple(given.nodes), given.details, given.output, given.watch), source, screen)


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

    from gpushare.ctl import why

    source, screen = _looking(given, plugin)
    options = why.Options(
        pod=given.pod,
        namespace=given.namespace,
        default_namespace="" if given.namespace else source.namespace(),
        filename=given.filename,
        output=given.output,
        extender=given.extender,
        program=program.removesuffix(" why"),
    )
    return why.run(options, source, screen, now=time.time(), stdin=sys.stdin)


def demo(words: list[str], program: str, plugin: bool) -> int:
    parser = Parser(program)
    parser.add_argument("--once", action="store_true")
    given = parser.parse(words)

    from gpushare.demo import app

    return app.run(_screen(given.color), once=given.once)


def extender(words: list[str], program: str, plugin: bool) -> int:
    parser = Parser(program)
    parser.add_argument("--port", nargs="+", default=["12345"])
    parser.add_argument("--listen", default="127.0.0.1")
    parser.add_argument("--policy", default="binpack")
    parser.add_argument("--memory-unit")
    parser.add_argument("--tls-cert")
    parser.add_argument("--tls-key")
    parser.add_argument("--client-ca")
    parser.add_argument("--log-level", default="info")
    given = parser.parse(words)

    import asyncio

    from gpushare.core.request import POLICY_NAMES
    from gpushare.extender import app, listen
    from gpushare.kube import auth
    from gpushare.kube.errors import KubeError
    from gpushare.obs import log

    log.setup((os.environ.get("LOG_LEVEL") or given.log_level).lower())
    if given.policy not in POLICY_NAMES:
        raise unknown("policy", given.policy, POLICY_NAMES, "--policy {}")
    if given.memory_unit not in (None, *UNITS):
        raise unknown("memory unit", given.memory_unit, UNITS, "--memory-unit {}")
    tls = listen.certificates(given.tls_cert, given.tls_key, given.client_ca)
    config = app.Config(given.listen, _ports(given.port), given.policy, given.memory_unit, tls)
    try:
        access = auth.load(given.kubeconfig, given.context, os.environ, Path.home())
        ended = asyncio.run(app.run(config, access))
    except KubeError as error:
        raise errors.UserError(error.what, error.why, error.way, errors.CLUSTER_NOT_ASKED) from error
    return INTERRUPTED if ended is signal.SIGINT else 0


def _viewing(program: str, takes: str) -> Parser:
    parser = Parser(program, f"options and {takes}")
    parser.add_argument("-o", "--output", default="")
    return parser


def _looking(given: argparse.Namespace, plugin: bool) -> tuple["Direct | Kubectl", "Screen"]:
    """Where the cluster is read from, and where the answer goes. As kubectl's plugin we ask through kubectl."""
    from gpushare.ctl.source import Direct, Kubectl

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


def _ports(given: Sequence[str]) -> list[int]:
    from_environment = os.environ.get("PORT")
    words = [from_environment] if from_environment else given
    for word in words:
        if not (word.isascii() and word.isdecimal() and len(word) <= 5 and 0 < int(word) < 65536):
            way = "PORT=12345" if from_environment else "--port 12345"
            raise errors.UserError(f'"{word}" is not a port', "ports are numbers from 1 to 65535", way)
    return list(dict.fromkeys(map(int, words)))
