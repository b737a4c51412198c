"""The options about Prometheus: where it asks, how it proves who it is, and, of a node part, NVIDIA's names.

`gpushare node --help-metrics` explains them (`help.NODE_METRICS`).
"""

import argparse
import os
import re
from typing import TYPE_CHECKING, Final

from gpushare.cli.words import Parser, unknown
from gpushare.obs.errors import UserError

if TYPE_CHECKING:
    from gpushare.kube.scraping.server import Listening
    from gpushare.node.exporter.exporter import Config

PORT: Final = 9400  # as dcgm-exporter's
OFF: Final = "off"
# A manifest says [$(POD_IP)], for both families. It is empty on a node that does not know its address yet.
ADDRESS: Final = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:.]*)\]|(?P<host>[^:\[\]\s]*)):(?P<port>[0-9]{1,5})")
DCGM_NAMES: Final = ("auto", "on", "off")
HOSTNAME_LABELS: Final = ("Hostname", "hostname")
NVIDIAS_NAMES: Final = {"dcgm-names": DCGM_NAMES[0], "hostname-label": HOSTNAME_LABELS[0], "counters": ""}  # defaults


def add(parser: Parser) -> None:
    """Of a node part."""
    add_listening(parser)
    for name, default in NVIDIAS_NAMES.items():
        parser.add_argument(f"--{name}", default=default)


def add_listening(parser: Parser) -> None:
    """Of any component."""
    parser.add_argument("--metrics-listen")
    parser.add_argument("--metrics-tls-cert", default="")
    parser.add_argument("--metrics-tls-key", default="")
    parser.add_argument("--metrics-client-ca", default="")


def config(args: argparse.Namespace) -> "Config":
    from gpushare.node.exporter.exporter import Config

    if args.dcgm_names not in DCGM_NAMES:
        raise unknown("choice", args.dcgm_names, DCGM_NAMES, "--dcgm-names {}")
    if args.hostname_label not in HOSTNAME_LABELS:
        raise unknown("label", args.hostname_label, HOSTNAME_LABELS, "--hostname-label {}")
    here = os.environ.get("POD_IP") or "127.0.0.1", PORT
    return Config(listening(args, here), args.dcgm_names, args.hostname_label, args.counters)


def listening(args: argparse.Namespace, default: tuple[str, int] | None) -> "Listening | None":
    """`default`: host and port if nothing is said; None: off."""
    from gpushare.kube.scraping.server import Listening, is_loopback

    cert, key, client_ca = args.metrics_tls_cert, args.metrics_tls_key, args.metrics_client_ca
    address = default if args.metrics_listen is None else _address(args.metrics_listen)
    if bool(cert) != bool(key) or (client_ca and not cert):
        why = "--metrics-tls-cert and --metrics-tls-key go together, and --metrics-client-ca needs both"
        raise UserError("a TLS file of the metrics page is missing", why, "give both, or all three, or none")
    if cert and (address is None or (is_loopback(address[0]) and not client_ca)):
        why = "on loopback it is plain HTTP for everybody on this machine" if address else "it is off"
        way = "--metrics-listen HOST:PORT with an address of this machine, or no TLS files"
        raise UserError("the metrics page has no use for TLS files", why, way)
    return None if address is None else Listening(*address, cert, key, client_ca)


def _address(text: str) -> tuple[str, int] | None:
    """Host and port; None: off. An empty host is every address of this machine."""
    if text == OFF:
        return None
    found = ADDRESS.fullmatch(text)
    if found is None or not 0 < int(found["port"]) < 65536:
        why = "it is HOST:PORT, [IPV6]:PORT, :PORT for all addresses of this machine, or off"
        raise UserError(f'"{text:.60}" is not an address to listen on', why, f"--metrics-listen 127.0.0.1:{PORT}")
    return found["v6"] or found["host"] or "", int(found["port"])
