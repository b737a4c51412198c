"""`gpushare dashboard`: its options and its page. As in `commands`, the component is imported when it runs."""

import argparse
import os
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from gpushare.cli import components
from gpushare.cli.words import Parser
from gpushare.ctl import streams
from gpushare.obs import errors

if TYPE_CHECKING:
    from gpushare.dashboard.app import Config

PORT: Final = "8443"
HOST: Final = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
OF_CLUSTER: Final = ("--host", "--tls-cert", "--tls-key", "--behind-proxy")

PAGE: Final = """\
usage: gpushare dashboard [options]
The cluster in a browser: every GPU, who has it and who uses more, why a pod
waits and what would help, what would fit where. It reads and never writes.
Without --in-cluster it reads with your kubeconfig, listens on this machine only
and prints a link that works once, for 10 minutes.
  --port N            default: any free port; in a cluster 8443
  --listen ADDRESS    default 127.0.0.1; in a cluster 0.0.0.0
  --no-browser        print the link only, also on a terminal
  --prometheus URL    for what is older than 48 hours
  --log-level LEVEL   debug, info, warn (default), error; LOG_LEVEL wins
In a cluster (deploy/dashboard.yaml), for all who may list nodes
  --in-cluster        HTTPS; log in with a token for audience gpushare-dashboard
  --host NAME ...     names it is asked by, besides its Service and addresses
  --tls-cert FILE --tls-key FILE    else it makes a certificate
  --behind-proxy      plain HTTP on loopback, for a proxy in the same pod that
                      sends Authorization: Bearer with each request
  --kubeconfig FILE, --context NAME, --color auto|always|never, --debug
Examples
  gpushare dashboard --prometheus http://127.0.0.1:9090
  ssh -L 8080:127.0.0.1:8080 HOST gpushare dashboard --port 8080
Exit codes: 0 after SIGTERM, 2 bad input, 3 the cluster could not be asked"""


def dashboard(words: list[str], program: str, plugin: bool) -> int:
    parser = Parser(program)
    for option in ("--listen", "--port", "--log-level"):
        parser.add_argument(option, default="")
    for switch in ("--no-browser", "--in-cluster", "--behind-proxy"):
        parser.add_argument(switch, action="store_true")
    for option in ("--prometheus", "--tls-cert", "--tls-key"):
        parser.add_argument(option, default="")
    parser.add_argument("--host", nargs="+", action="extend", default=[])
    args = parser.parse(words)

    import asyncio

    from gpushare.dashboard import app
    from gpushare.kube.auth import login
    from gpushare.obs import log

    log.setup((os.environ.get("LOG_LEVEL") or args.log_level or ("info" if args.in_cluster else "warn")).lower())
    config = _config(args)
    access = login.load(args.kubeconfig, args.context, os.environ, Path.home())
    ended = asyncio.run(app.run(config, access, lambda line: streams.remark(sys.stdout, f"{line}\n")))
    return errors.INTERRUPTED if ended is signal.SIGINT else 0


def _config(args: argparse.Namespace) -> "Config":
    from gpushare.dashboard.app import Config
    from gpushare.kube.scraping.server import is_loopback

    in_cluster: bool = args.in_cluster
    _check_together(args)
    args.listen = args.listen or ("127.0.0.1" if args.behind_proxy or not in_cluster else "0.0.0.0")
    port = components.listening(argparse.Namespace(listen=args.listen, port=args.port or PORT), PORT)[1]
    if not is_loopback(args.listen) and (args.behind_proxy or not in_cluster):
        why = "plain HTTP would carry what you may see over the network"
        way = "ssh -L 8080:127.0.0.1:8080 HOST, or --in-cluster with HTTPS"
        raise errors.UserError(f"--listen {args.listen} is not this machine's loopback", why, way)
    for host in args.host:
        if not HOST.fullmatch(host):
            why = "it is a name or an address, with or without a port"
            raise errors.UserError(f'"{host:.60}" is not a host', why, "--host gpus.example.com")
    return Config(
        args.listen, port if args.port or in_cluster else 0, in_cluster=in_cluster, behind_proxy=args.behind_proxy,
        hosts=tuple(args.host), tls_cert=args.tls_cert, tls_key=args.tls_key, prometheus=_url(args.prometheus),
        browser=not in_cluster and not args.no_browser and sys.stdout.isatty(),
    )  # fmt: skip


def _check_together(args: argparse.Namespace) -> None:
    given = [bool(args.host), bool(args.tls_cert), bool(args.tls_key), args.behind_proxy]
    alone = [option for option, is_given in zip(OF_CLUSTER, given, strict=True) if is_given]
    if alone and not args.in_cluster:
        why = "without it the dashboard is for you alone, on this machine"
        raise errors.UserError(f"{alone[0]} needs --in-cluster", why, f"--in-cluster, or no {alone[0]}")
    if bool(args.tls_cert) != bool(args.tls_key):
        raise errors.UserError("a TLS file is missing", "--tls-cert and --tls-key go together", "give both, or none")
    if args.behind_proxy and args.tls_cert:
        why = "behind a proxy it is plain HTTP on loopback"
        raise errors.UserError("--behind-proxy and --tls-cert do not go together", why, "leave one of them out")
    if args.in_cluster and args.no_browser:
        raise errors.UserError("--no-browser and --in-cluster do not go together", "a pod opens no browser",
                               "leave out --no-browser")  # fmt: skip


def _url(text: str) -> str:
    """Of a Prometheus server; empty: none."""
    try:
        parts = urlsplit(text)
        good = not text or (parts.scheme in ("http", "https") and bool(parts.hostname))
    except ValueError:
        good = False
    if not good:
        why = "it begins with http:// or https://, as in Grafana"
        raise errors.UserError(f'"{text:.60}" is not the address of a Prometheus', why, "--prometheus http://HOST:9090")
    return text
