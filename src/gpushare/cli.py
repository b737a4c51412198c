"""The `gpushare` command: what there is, and the one component that was asked for.

Imports only the chosen component, so that each starts fast. argparse's own errors are replaced by ours: what, why,
and what to try.
"""

import argparse
import asyncio
import os
import ssl
import sys
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
Answers kube-scheduler's filter, prioritize, bind and preempt calls for pods that
ask for aliyun.com/gpu-mem or aliyun.com/gpu-count.
  --port N [N ...]      where to listen (default 12345; PORT in the environment wins)
  --listen ADDRESS      default 127.0.0.1; anything else should have TLS
  --policy NAME         binpack (default) or spread; pods override it with the
                        annotation gpushare.io/policy
  --memory-unit UNIT    MiB or GiB: what pods mean that do not say it
                        (default: such pods may go to nodes of either)
  --tls-cert FILE --tls-key FILE --client-ca FILE
                        HTTPS, and only for clients with a certificate of that CA
  --log-level LEVEL     debug, info (default), warn, error (LOG_LEVEL wins)
  --kubeconfig FILE, --context NAME, --debug
Examples
  gpushare extender --kubeconfig ~/.kube/config
  gpushare extender --port 12345 32766 --policy spread
Exit codes: 0 after SIGTERM, 2 bad input, 3 the cluster could not be asked"""

COMMANDS = {"extender": EXTENDER_HELP}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code. Nobody sees a stack trace unless they ask for it."""
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    try:
        return _run(words)
    except errors.UserError as error:
        if debug:
            raise
        print(error.render(), file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        return 130


def _run(words: list[str]) -> int:
    command = next((word for word in words if not word.startswith("-")), None)
    if "--version" in words:
        print(gpushare.__version__)
        return 0
    if command is None:
        print(HELP)
        return 0 if "-h" in words or "--help" in words else errors.BAD_INPUT
    if command not in COMMANDS:
        raise errors.UserError(f'unknown command "{command}"', f"commands: {', '.join(COMMANDS)}", "gpushare --help")
    if "-h" in words or "--help" in words:
        print(COMMANDS[command])
        return 0
    words.remove(command)
    return _extender(words)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise errors.UserError(
            message, f"gpushare {self.prog} does not understand this line", f"gpushare {self.prog} --help"
        )


def _extender(words: list[str]) -> int:
    parser = _Parser(prog="extender", add_help=False, allow_abbrev=False)
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
    given = parser.parse_args(words)

    from gpushare.core.request import POLICY_NAMES
    from gpushare.extender import app
    from gpushare.kube import auth
    from gpushare.kube.errors import KubeError
    from gpushare.obs import log

    log.setup((os.environ.get("LOG_LEVEL") or given.log_level).lower())
    if given.policy not in POLICY_NAMES:
        raise errors.UserError(
            f'unknown policy "{given.policy}"', f"policies: {', '.join(POLICY_NAMES)}", "--policy binpack"
        )
    if given.memory_unit not in (None, "MiB", "GiB"):
        raise errors.UserError(f'unknown memory unit "{given.memory_unit}"', "units: MiB, GiB", "--memory-unit MiB")
    ports = [_port(word) for word in ([os.environ["PORT"]] if os.environ.get("PORT") else given.port)]
    config = app.Config(given.listen, ports, given.policy, given.memory_unit, _tls(given))
    try:
        access = auth.load(given.kubeconfig, given.context, os.environ, Path.home())
        asyncio.run(app.run(config, access))
    except KubeError as error:
        raise errors.UserError(error.what, error.why, error.way, errors.CLUSTER_NOT_ASKED) from error
    return 0


def _port(word: str) -> int:
    if word.isdecimal() and 0 < int(word) < 65536:
        return int(word)
    raise errors.UserError(f'"{word}" is not a port', "ports are numbers from 1 to 65535", "--port 12345")


def _tls(given: argparse.Namespace) -> ssl.SSLContext | None:
    files = (given.tls_cert, given.tls_key, given.client_ca)
    if not any(files):
        return None
    if not all(files):
        raise errors.UserError(
            "TLS needs three files", "--tls-cert, --tls-key and --client-ca go together", "give all three, or none"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_cert_chain(given.tls_cert, given.tls_key)
        context.load_verify_locations(given.client_ca)
    except (OSError, ssl.SSLError) as error:
        raise errors.UserError(
            "the TLS files cannot be used",
            str(error),
            "check --tls-cert, --tls-key and --client-ca: PEM, and a matching pair",
        ) from error
    return context
