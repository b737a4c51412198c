"""The `gpushare` command: what there is, and the one component that was asked for.

Imports only the chosen component, so that each starts fast. argparse's own errors are replaced by ours: what, why,
and what to try.
"""

import argparse
import difflib
import os
import re
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import gpushare
from gpushare.obs import errors

HELP = """\
usage: gpushare COMMAND [options]        share GPUs on Kubernetes by GPU memory

Run (one each per cluster component)
  extender            tells kube-scheduler which node and which GPU

Options of every command, anywhere on the line
  --kubeconfig FILE, --context NAME, --debug
  -h, --help, --version

Exit codes: 0 done, 2 bad input, 3 the cluster could not be asked"""

EXTENDER_HELP = """\
usage: gpushare extender [options]
Answers kube-scheduler's filter, prioritize, bind and preempt calls for pods
that ask for aliyun.com/gpu-mem or aliyun.com/gpu-count.
  --port N [N ...]      where to listen (default 12345); PORT in the environment
                        wins
  --listen ADDRESS      default 127.0.0.1; anything else should have TLS
  --policy NAME         binpack (default) or spread; pods override it with the
                        annotation gpushare.io/policy
  --memory-unit UNIT    MiB or GiB: what pods mean that do not say it
                        (default: such pods may go to nodes of either)
  --tls-cert FILE --tls-key FILE --client-ca FILE
                        HTTPS, only for clients with a certificate of that CA
  --log-level LEVEL     debug, info (default), warn, error; LOG_LEVEL wins
  --kubeconfig FILE, --context NAME, --debug
Examples
  gpushare extender --kubeconfig ~/.kube/config
  gpushare extender --port 12345 32766 --policy spread
Exit codes: 0 after SIGTERM, 2 bad input, 3 the cluster could not be asked"""

COMMANDS = {"extender": EXTENDER_HELP}
OF_EVERY_COMMAND = ("--kubeconfig", "--context")  # with a value, before or after the command
UNITS = ("MiB", "GiB")
INTERRUPTED = 130
SWITCHES = ("--debug", "--version", "-h", "--help")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code. Nobody sees a stack trace unless they ask for it."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run(words)
    except errors.UserError as error:
        if "--debug" in words:
            traceback.print_exc()
        print(error.render(), file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(words: list[str]) -> int:
    if "--version" in words:
        print(gpushare.__version__)
        return 0
    at = _command(words)
    asks_help = "-h" in words or "--help" in words
    if at is not None and words[at] not in COMMANDS:
        raise _unknown("command", words[at], list(COMMANDS), "gpushare {}", otherwise="gpushare --help")
    if asks_help:
        print(HELP if at is None else COMMANDS[words[at]])
        return 0
    if at is None:
        return _no_command(words)
    return _extender(words[:at] + words[at + 1 :])


def _no_command(words: Sequence[str]) -> int:
    known = (*OF_EVERY_COMMAND, *SWITCHES)
    for word in words:
        if word.startswith("-") and _name(word) not in known:
            raise _unknown_option(word, "gpushare", known)
    print(HELP)
    return errors.BAD_INPUT


def _command(words: Sequence[str]) -> int | None:
    """Where the command stands: the first word that is neither an option nor its value."""
    for at, word in enumerate(words):
        if not word.startswith("-") and (at == 0 or words[at - 1] not in OF_EVERY_COMMAND):
            return at
    return None


def _unknown(what: str, given: str, known: Sequence[str], way: str, *, otherwise: str = "") -> errors.UserError:
    spelled = {name.lower(): name for name in known}
    close = [spelled[name] for name in difflib.get_close_matches(given.lower(), spelled, n=1)]
    plural = what.removesuffix("y") + "ies" if what.endswith("y") else what + "s"
    best = otherwise if otherwise and not close else way.format((close or known)[0])
    return errors.UserError(f'unknown {what} "{given}"', f"{plural}: {', '.join(known)}", best)


def _unknown_option(word: str, program: str, known: Sequence[str]) -> errors.UserError:
    close = difflib.get_close_matches(_name(word), known, n=2)
    way = f"{program} {close[0]}; all options: {program} --help" if close else f"{program} --help"
    return errors.UserError(f"unknown option {_name(word)}", f"{program} knows {', '.join(close or known)}", way)


def _name(option: str) -> str:
    return option.partition("=")[0]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        found = re.fullmatch(r"argument (\S+): (expected .*)", message)
        what, why = (f"{found[1]} needs a value", found[2]) if found else (message, "the line is not understood")
        raise errors.UserError(what, why, f"{self.prog} --help")

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        given, rest = self.parse_known_args(words)
        for word in rest:
            if word.startswith("-"):
                raise _unknown_option(word, self.prog, [name for name in self._option_string_actions if name])
            raise errors.UserError(
                f'unexpected word "{word}"', f"{self.prog} takes options only", f"{self.prog} --help"
            )
        return given


def _extender(words: list[str]) -> int:
    parser = _Parser(prog="gpushare extender", add_help=False, allow_abbrev=False)
    parser.add_argument("--port", nargs="+", default=["12345"])
    parser.add_argument("--listen", default="127.0.0.1")
    parser.add_argument("--policy", default="binpack")
    parser.add_argument("--memory-unit")
    parser.add_argument("--tls-cert")
    parser.add_argument("--tls-key")
    parser.add_argument("--client-ca")
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--kubeconfig")
    parser.add_argument("--context")
    parser.add_argument("--debug", action="store_true")
    given = parser.parse(words)

    import asyncio

    from gpushare.core.request import POLICY_NAMES
    from gpushare.extender import app, listen
    from gpushare.kube import auth
    from gpushare.kube.errors import KubeError
    from gpushare.obs import log

    log.setup((os.environ.get("LOG_LEVEL") or given.log_level).lower())
    if given.policy not in POLICY_NAMES:
        raise _unknown("policy", given.policy, POLICY_NAMES, "--policy {}")
    if given.memory_unit not in (None, *UNITS):
        raise _unknown("memory unit", given.memory_unit, UNITS, "--memory-unit {}")
    tls = listen.certificates(given.tls_cert, given.tls_key, given.client_ca)
    config = app.Config(given.listen, _ports(given.port), given.policy, given.memory_unit, tls)
    try:
        access = auth.load(given.kubeconfig, given.context, os.environ, Path.home())
        ended = asyncio.run(app.run(config, access))
    except KubeError as error:
        raise errors.UserError(error.what, error.why, error.way, errors.CLUSTER_NOT_ASKED) from error
    return INTERRUPTED if ended is signal.SIGINT else 0


def _ports(given: Sequence[str]) -> list[int]:
    from_environment = os.environ.get("PORT")
    words = [from_environment] if from_environment else given
    for word in words:
        if not (word.isascii() and word.isdecimal() and len(word) <= 5 and 0 < int(word) < 65536):
            way = "PORT=12345" if from_environment else "--port 12345"
            raise errors.UserError(f'"{word}" is not a port', "ports are numbers from 1 to 65535", way)
    return list(dict.fromkeys(map(int, words)))
