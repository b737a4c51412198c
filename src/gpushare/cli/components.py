"""What runs in a cluster: the extender, and the node part under its two names.

As in `commands`, a component is imported when it is asked for.
"""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpushare.cli.words import Parser, unknown
from gpushare.core.facts import policies
from gpushare.ctl import streams
from gpushare.obs import errors

if TYPE_CHECKING:
    from gpushare.node.deviceplugin.environment import Visible
    from gpushare.node.pinning import Asked

INTERRUPTED = 130
UNITS = ("MiB", "GiB")
PINS = ("auto", "direct", "plugin")
VISIBLE = ("uuid", "index")
SECONDS_IN = {"s": 1, "m": 60, "h": 3600}
MOST_RESERVED = 1 << 20  # MiB
# Of the original plugin: what it queried kubelet with, and how its log was written. With a value, and without.
OF_ORIGINAL = ("kubelet-address", "kubelet-port", "client-cert", "client-key", "token", "timeout", "mps-pipe", "v",
               "vmodule", "stderrthreshold", "log_dir", "log_backtrace_at")  # fmt: skip
SWITCHES_OF_ORIGINAL = ("health-check", "mps", "query-kubelet", "logtostderr", "alsologtostderr")
IGNORED = "note: {flags}: taken for the sake of Aliyun's manifests, without effect here"


def extender(words: list[str], program: str, plugin: bool) -> int:
    parser = Parser(program)
    parser.add_argument("--port", nargs="+", default=["12345"])
    parser.add_argument("--listen", default="127.0.0.1")
    parser.add_argument("--policy", default=policies.DEFAULT)
    parser.add_argument("--memory-unit")
    parser.add_argument("--patience", default="10m")
    parser.add_argument("--tls-cert")
    parser.add_argument("--tls-key")
    parser.add_argument("--client-ca")
    parser.add_argument("--log-level", default="info")
    given = parser.parse(words)

    import asyncio

    from gpushare.extender import app, listen
    from gpushare.kube.auth import login
    from gpushare.obs import log

    log.setup((os.environ.get("LOG_LEVEL") or given.log_level).lower())
    if given.policy not in policies.POLICIES:
        raise unknown("policy", given.policy, tuple(policies.POLICIES), "--policy {}")
    if given.memory_unit not in (None, *UNITS):
        raise unknown("memory unit", given.memory_unit, UNITS, "--memory-unit {}")
    patience = _seconds(given.patience)
    tls = listen.certificates(given.tls_cert, given.tls_key, given.client_ca)
    config = app.Config(_address(given.listen), _ports(given.port), given.policy, given.memory_unit, tls, patience)
    access = login.load(given.kubeconfig, given.context, os.environ, Path.home())
    ended = asyncio.run(app.run(config, access))
    return INTERRUPTED if ended is signal.SIGINT else 0


def node(words: list[str], program: str, plugin: bool) -> int:
    parser = _on_a_node(program)
    parser.add_argument("--pin", default="auto")
    given = parser.parse(words)
    if given.pin not in PINS:
        raise unknown("pin", given.pin, PINS, "--pin {}")
    return _run_node(given, given.pin)


def device_plugin(words: list[str], program: str, plugin: bool) -> int:
    parser = _on_a_node(program)
    parser.add_argument("--visible-devices", default="uuid")
    parser.add_argument("--unhealthy-configmap", action="store_true")
    for name in OF_ORIGINAL:
        parser.add_argument(f"--{name}", dest="ignored", action="append")
    for name in SWITCHES_OF_ORIGINAL:
        parser.add_argument(f"--{name}", dest="ignored", action="append", nargs="?")
    original = (*OF_ORIGINAL, *SWITCHES_OF_ORIGINAL)
    # Go's programs take their flags with one dash or with two.
    doubled = [f"-{word}" if _flag(word) in (*original, "memory-unit") and word[1] != "-" else word for word in words]
    given = parser.parse(doubled)
    if given.ignored:
        flags = ", ".join(f"--{_flag(word)}" for word in doubled if _flag(word) in original)
        streams.remark(sys.stderr, IGNORED.format(flags=flags) + "\n")
    if given.visible_devices not in VISIBLE:
        raise unknown("GPU notation", given.visible_devices, VISIBLE, "--visible-devices {}")
    return _run_node(given, "plugin", given.visible_devices, given.unhealthy_configmap)


def _flag(word: str) -> str:
    """The name of a flag, without dashes and value; empty if it is none."""
    return word.lstrip("-").partition("=")[0] if word.startswith("-") else ""


def _on_a_node(program: str) -> Parser:
    parser = Parser(program)
    parser.add_argument("--node-name", default=os.environ.get("NODE_NAME", ""))
    parser.add_argument("--memory-unit", default="GiB")
    parser.add_argument("--reserve", default="0")
    parser.add_argument("--listen", default="127.0.0.1")
    parser.add_argument("--port", default="12346")
    parser.add_argument("--log-level", default="info")
    return parser


def _run_node(
    given: argparse.Namespace, pin: "Asked", visible: "Visible" = "uuid", unhealthy_configmap: bool = False
) -> int:
    import asyncio

    from gpushare.gpu.nvml import Nvml
    from gpushare.kube.auth import login
    from gpushare.node import app
    from gpushare.obs import log

    log.setup((os.environ.get("LOG_LEVEL") or given.log_level).lower())
    if not given.node_name:
        why = "neither --node-name nor NODE_NAME is given"
        raise errors.UserError(
            "which node is this?", why, "--node-name NAME, or NODE_NAME from the pod's spec.nodeName"
        )
    if given.memory_unit not in UNITS:
        raise unknown("memory unit", given.memory_unit, UNITS, "--memory-unit {}")
    reserve = given.reserve
    digits = reserve.isascii() and reserve.isdecimal() and len(reserve) <= len(str(MOST_RESERVED))
    if not (digits and int(reserve) <= MOST_RESERVED):
        raise errors.UserError(f'"{reserve:.20}" is not an amount to reserve', "it is a number of MiB", "--reserve 512")
    (port,) = _port_numbers([given.port], "--port 12346")
    config = app.Config(
        given.node_name, given.memory_unit, pin, int(reserve), _address(given.listen), port, visible,
        unhealthy_configmap,
    )  # fmt: skip
    access = login.load(given.kubeconfig, given.context, os.environ, Path.home())
    ended = asyncio.run(app.run(config, access, Nvml()))
    return INTERRUPTED if ended is signal.SIGINT else 0


def _address(given: str) -> str:
    if not given:
        why = "left empty, it would be every address of this machine"
        raise errors.UserError('"" is not an address', why, "--listen 127.0.0.1, or 0.0.0.0 for every one")
    return given


def _seconds(given: str) -> float:
    """`600`, `600s`, `10m` or `2h`."""
    number, unit = (given[:-1], given[-1]) if given[-1:] in SECONDS_IN else (given, "s")
    if not (number.isascii() and number.isdecimal() and len(number) <= 6):
        why = "it is a number of seconds, or one with s, m or h"
        raise errors.UserError(f'"{given:.20}" is not a time to wait', why, "--patience 10m, or 0 for never")
    return float(int(number) * SECONDS_IN[unit])


def _ports(given: Sequence[str]) -> list[int]:
    from_environment = os.environ.get("PORT")
    if from_environment:
        return _port_numbers([from_environment], "PORT=12345")
    return _port_numbers(given, "--port 12345")


def _port_numbers(words: Sequence[str], way: str) -> list[int]:
    for word in words:
        if not (word.isascii() and word.isdecimal() and len(word) <= 5 and 0 < int(word) < 65536):
            raise errors.UserError(f'"{word}" is not a port', "ports are numbers from 1 to 65535", way)
    return list(dict.fromkeys(map(int, words)))
