"""What runs in a cluster: the extender, the node part under its two names, the collector, and the webhook.

As in `commands`, a component is imported when it runs.
"""

import argparse
import itertools
import os
import re
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpushare.cli import discovering, exporting, observing
from gpushare.cli.words import Parser, namespace, seconds, unknown
from gpushare.core.admission import guard
from gpushare.core.annotations import node_gpus
from gpushare.core.facts import names, policies
from gpushare.ctl import streams
from gpushare.obs import errors

if TYPE_CHECKING:
    from gpushare.gpu.nvml import Nvml
    from gpushare.kube.auth.login import Access
    from gpushare.node.deviceplugin.environment import Visible
    from gpushare.node.pinning import Choice

UNITS = ("MiB", "GiB")
PINS = ("auto", "direct", "plugin")
VISIBLE = ("uuid", "index")
SELLS = ("shares", "gpus")
MOST_RESERVED = 1 << 20  # MiB
NVIDIA_GPU = ("whole",)
# Flags of Aliyun's plugin: for its queries to kubelet, and for its log. With a value, and without.
ALIYUN_FLAGS = ("kubelet-address", "kubelet-port", "client-cert", "client-key", "token", "timeout", "mps-pipe", "v",
               "vmodule", "stderrthreshold", "log_dir", "log_backtrace_at")  # fmt: skip
ALIYUN_SWITCHES = ("health-check", "mps", "query-kubelet", "logtostderr", "alsologtostderr")
WEBHOOK_CHOICES = {  # the first is the default
    "pin-namespaces": ("all", "labelled"),
    "nvidia-gpu": ("off", "whole"),
    "unasked": ("off", "void"),
    "on-invalid": ("deny", "warn"),
    "on-unplaceable": ("warn", "deny", "off"),
}
SCHEDULER_NAME = re.compile(r"[a-z0-9]+(?:[-.][a-z0-9]+)*")
LONGEST_NAME = 63
IGNORED = "note: these flags of Aliyun's plugin have no effect here: {flags}"


def extender(words: list[str], program: str, plugin: bool) -> int:
    parser = Parser(program)
    parser.add_argument("--port", nargs="+", default=["12345"])
    parser.add_argument("--listen", default="127.0.0.1")
    parser.add_argument("--policy", default=policies.DEFAULT)
    parser.add_argument("--memory-unit")
    parser.add_argument("--policy-namespace")
    parser.add_argument("--patience", default="10m")
    parser.add_argument("--tls-cert")
    parser.add_argument("--tls-key")
    parser.add_argument("--client-ca")
    exporting.add_listening(parser)
    parser.add_argument("--log-level", default="info")
    args = parser.parse(words)

    import asyncio

    from gpushare.extender import app
    from gpushare.kube.auth import login
    from gpushare.obs import http, log

    log.setup((os.environ.get("LOG_LEVEL") or args.log_level).lower())
    if args.policy not in policies.POLICIES:
        raise unknown("policy", args.policy, tuple(policies.POLICIES), "--policy {}")
    if args.memory_unit not in (None, *UNITS):
        raise unknown("memory unit", args.memory_unit, UNITS, "--memory-unit {}")
    patience = seconds(args.patience)
    tls = http.certificates(args.tls_cert, args.tls_key, args.client_ca)
    config = app.Config(
        _address(args.listen), _ports(args.port), args.policy, args.memory_unit, tls, patience,
        metrics=exporting.listening(args, None), policy_namespace=namespace(args.policy_namespace),
    )  # fmt: skip
    access = login.load(args.kubeconfig, args.context, os.environ, Path.home())
    ended = asyncio.run(app.run(config, access))
    return errors.INTERRUPTED if ended is signal.SIGINT else 0


def sells_gpus(words: Sequence[str]) -> bool:
    return "--sell=gpus" in words or ("--sell", "gpus") in itertools.pairwise(words)


def node(words: list[str], program: str, plugin: bool) -> int:
    parser, gpus = _node_parser(program), _gpus_parser(f"{program} --sell=gpus")
    parser.add_argument("--sell", default="shares")
    parser.add_argument("--pin", default="auto")
    parser.add_argument("--mps-slots", default="0")
    parser.add_argument("--mps-status")
    parser.add_argument("--nvidia-gpu")
    discovering.add(parser)
    add_fail_on_init_error(parser)
    if sells_gpus(words):
        return _sell_gpus(gpus.parse(words, beside=parser))
    args = parser.parse(words, beside=gpus)
    if args.sell not in SELLS:
        raise unknown("--sell value", args.sell, SELLS, "--sell {}")
    if args.pin not in PINS:
        raise unknown("pin", args.pin, PINS, "--pin {}")
    slots = args.mps_slots
    if not (slots.isascii() and slots.isdecimal() and len(slots) <= 2 and int(slots) <= node_gpus.MOST_SLOTS):
        why = f"it is the number of MPS shares of each GPU, 0 to {node_gpus.MOST_SLOTS}"
        raise errors.UserError(f'"{slots:.20}" is not a number of MPS slots', why, "--mps-slots 10")
    if args.nvidia_gpu not in (None, *NVIDIA_GPU):
        raise unknown("--nvidia-gpu value", args.nvidia_gpu, NVIDIA_GPU, "--nvidia-gpu={}")
    mps_status = _mps_status(args)
    if mps_status and not int(slots):
        why = "it says how the daemon is that serves MPS slots, and --mps-slots is 0"
        raise errors.UserError("--mps-status has no effect", why, "--mps-slots 10, or leave it out")
    if mps_status and args.nvidia_gpu is not None:
        why = "only clients of MPS can use the GPUs that gpushare mps has, and --nvidia-gpu sells them whole"
        raise errors.UserError("--mps-status and --nvidia-gpu contradict each other", why, "leave one of them out")
    return _run_node(
        args, args.pin, slots=int(slots), nvidia_whole=args.nvidia_gpu is not None, mps_status=mps_status,
        fails=fails_on_init_error(args), discovery=args.discovery,
    )  # fmt: skip


def device_plugin(words: list[str], program: str, plugin: bool) -> int:
    parser = _node_parser(program)
    parser.add_argument("--visible-devices", default="uuid")
    parser.add_argument("--unhealthy-configmap", action="store_true")
    for name in ALIYUN_FLAGS:
        parser.add_argument(f"--{name}", dest="ignored", action="append")
    for name in ALIYUN_SWITCHES:
        parser.add_argument(f"--{name}", dest="ignored", action="append", nargs="?")
    aliyun = (*ALIYUN_FLAGS, *ALIYUN_SWITCHES)
    # Programs written in Go take their flags with one dash or with two.
    doubled = [f"-{word}" if _flag(word) in (*aliyun, "memory-unit") and word[1] != "-" else word for word in words]
    args = parser.parse(doubled)
    if args.ignored:
        flags = ", ".join(f"--{_flag(word)}" for word in doubled if _flag(word) in aliyun)
        streams.remark(sys.stderr, IGNORED.format(flags=flags) + "\n")
    if args.visible_devices not in VISIBLE:
        raise unknown("GPU notation", args.visible_devices, VISIBLE, "--visible-devices {}")
    return _run_node(args, "plugin", args.visible_devices, args.unhealthy_configmap)


def collector(words: list[str], program: str, plugin: bool) -> int:
    from gpushare.node.collector import app

    parser = Parser(program)
    _common(parser, port=str(app.PORT))
    add_fail_on_init_error(parser)
    args = parser.parse(words)
    name, address, port = identity(args)
    if args.sample_seconds == "0":
        raise errors.UserError("--sample-seconds is 0", "a collector does nothing but sample", "--sample-seconds 5")
    config = app.Config(name, address, port, observing.config(args), fails_on_init_error(args))
    return _until_ended(args, lambda access, gpus: app.run(config, access, gpus))


def _gpus_parser(program: str) -> Parser:
    from gpushare.node.nvidia.rules import flags

    parser = Parser(program)
    parser.add_argument("--sell", action="append")
    _common(parser)
    discovering.add(parser)
    parser.add_argument("--mps-status")
    parser.add_argument("--config-file", default=os.environ.get("CONFIG_FILE", ""))
    parser.add_argument("--config-dir", default=os.environ.get("CONFIG_FILE_SRCDIR", ""))
    parser.add_argument("--default-config", default=os.environ.get("DEFAULT_CONFIG", ""))
    parser.add_argument("--fallback-strategies", default=os.environ.get("FALLBACK_STRATEGIES") or "named,single")
    for flag in flags.FLAGS:
        maybe: dict[str, Any] = {"nargs": "?", "const": "true"} if isinstance(flag.default, bool) else {}
        parser.add_argument(*(f"--{name}" for name in flag.spellings), dest=flag.name, action="append", **maybe)
    return parser


def _sell_gpus(args: argparse.Namespace) -> int:
    if set(args.sell) != {"gpus"}:
        why = f"--sell is {', '.join(args.sell)}: a node sells shares or whole GPUs, never both"
        raise errors.UserError("two things to sell", why, "give --sell once")
    if args.config_file and args.config_dir:
        why = "--config-file names the config, --config-dir has several to choose from"
        raise errors.UserError("two places for one config", why, "give one of the two")

    from gpushare.node.nvidia import app
    from gpushare.node.nvidia.config_source import Places
    from gpushare.node.nvidia.rules import flags, xids

    name, address, port = identity(args)
    variables = (xids.DISABLE, xids.ENABLE, *(variable for flag in flags.FLAGS for variable in flag.variables))
    fallbacks = tuple(word.strip() for word in args.fallback_strategies.split(",") if word.strip())
    given = {flag.name: vars(args)[flag.name] for flag in flags.FLAGS}
    config = app.Config(
        name,
        # A list may be given piece by piece; of anything else the last word counts.
        {name: ",".join(said) if name in flags.LISTS else said[-1] for name, said in given.items() if said},
        {variable: os.environ[variable] for variable in variables if variable in os.environ},
        Places(args.config_file, args.config_dir, args.default_config, fallbacks),
        address,
        port,
        mps_status=_mps_status(args),
        observing=observing.config(args),
        discovery=discovering.config(args.discovery),
    )
    return _until_ended(args, lambda access, gpus: app.run(config, access, gpus))


def webhook(words: list[str], program: str, plugin: bool) -> int:
    parser = Parser(program)
    parser.add_argument("--port", default="9443")
    parser.add_argument("--listen", default="0.0.0.0")
    for name, choices in WEBHOOK_CHOICES.items():
        parser.add_argument(f"--{name}", default=choices[0])
    for name in ("scheduler-name", "tls-cert", "tls-key", "ca-file"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--log-level", default="info")
    args = parser.parse(words)
    scheduler = _scheduler_name(args.scheduler_name)
    given = {name: getattr(args, name.replace("-", "_")) for name in WEBHOOK_CHOICES}
    for name, choices in WEBHOOK_CHOICES.items():
        if given[name] not in choices:
            raise unknown(f"--{name} value", given[name], choices, f"--{name} {{}}")
    if bool(args.tls_cert) != bool(args.tls_key) or (args.ca_file and not args.tls_cert):
        why = "--tls-cert and --tls-key go together, and --ca-file with them"
        raise errors.UserError("half a certificate", why, "give both, or none: then it makes its own")

    import asyncio

    from gpushare.kube.auth import login
    from gpushare.obs import log
    from gpushare.webhook import app, reviews, rules

    log.setup((os.environ.get("LOG_LEVEL") or args.log_level).lower())
    chosen = rules.Choices(
        labelled=given["pin-namespaces"] == "labelled",
        nvidia=given["nvidia-gpu"] == "whole",
        void=given["unasked"] == "void",
        scheduler=scheduler,
        namespace=os.environ.get("POD_NAMESPACE") or guard.NAMESPACE,
    )
    (port,) = _port_numbers([args.port], "--port 9443")
    on = reviews.On(given["on-invalid"], given["on-unplaceable"])
    config = app.Config(_address(args.listen), port, chosen, on, args.tls_cert, args.tls_key, args.ca_file)
    access = login.load(args.kubeconfig, args.context, os.environ, Path.home())
    ended = asyncio.run(app.run(config, access))
    return errors.INTERRUPTED if ended is signal.SIGINT else 0


def _scheduler_name(written: str | None) -> str:
    """Empty: none is given. It becomes part of a path that API servers ask, which they check."""
    if written is not None and not (len(written) <= LONGEST_NAME and SCHEDULER_NAME.fullmatch(written)):
        why = "it has small letters, digits, dashes and dots, 63 at most"
        way = f"--scheduler-name {names.GPU_SCHEDULER}"
        raise errors.UserError(f'"{written:.63}" is not the name of a scheduler', why, way)
    return written or ""


def _flag(word: str) -> str:
    """The name of a flag, without dashes and value; empty if it is none."""
    return word.lstrip("-").partition("=")[0] if word.startswith("-") else ""


def _node_parser(program: str) -> Parser:
    parser = Parser(program)
    _common(parser)
    parser.add_argument("--memory-unit", default="GiB")
    parser.add_argument("--reserve", default="0")
    return parser


def _common(parser: Parser, port: str = "12346") -> None:
    """What every process on a GPU node takes."""
    parser.add_argument("--node-name", default=os.environ.get("NODE_NAME", ""))
    parser.add_argument("--listen", default="127.0.0.1")
    parser.add_argument("--port", default=port)
    parser.add_argument("--log-level", default="info")
    observing.add(parser)


def _mps_status(args: argparse.Namespace) -> str:
    """Empty: nobody looks after the daemon. That is never meant by an empty word, such as a variable without value."""
    written: str | None = args.mps_status
    if written is not None and not written.startswith("/"):
        why = "it is the path of the folder where gpushare mps reports"
        raise errors.UserError(f'"{written:.40}" is not a folder', why, f"--mps-status {names.MPS_STATUS_FOLDER}")
    return written or ""


def add_fail_on_init_error(parser: Parser) -> None:
    """Spelled as NVIDIA's."""
    parser.add_argument("--fail-on-init-error", nargs="?", const="true", default="true")


def fails_on_init_error(args: argparse.Namespace) -> bool:
    from gpushare.node.nvidia.rules import flags

    return flags.yes("--fail-on-init-error", args.fail_on_init_error)


def identity(args: argparse.Namespace, port: str = "12346") -> tuple[str, str, int]:
    """Which node this is, and where it listens."""
    from gpushare.obs import log

    log.setup((os.environ.get("LOG_LEVEL") or args.log_level).lower())
    if not args.node_name:
        why = "neither --node-name nor NODE_NAME is given"
        raise errors.UserError(
            "which node is this?", why, "--node-name NAME, or NODE_NAME from the pod's spec.nodeName"
        )
    return args.node_name, *listening(args, port)


def listening(args: argparse.Namespace, port: str) -> tuple[str, int]:
    """The address and the port. `port`: a proposal, if the given one is wrong."""
    (number,) = _port_numbers([args.port], f"--port {port}")
    return _address(args.listen), number


def _until_ended(args: argparse.Namespace, run: "Callable[[Access, Nvml], Coroutine[Any, Any, signal.Signals]]") -> int:
    import asyncio

    from gpushare.gpu.nvml import Nvml
    from gpushare.kube.auth import login

    access = login.load(args.kubeconfig, args.context, os.environ, Path.home())
    ended = asyncio.run(run(access, Nvml()))
    return errors.INTERRUPTED if ended is signal.SIGINT else 0


def _run_node(
    args: argparse.Namespace,
    pin: "Choice",
    visible: "Visible" = "uuid",
    unhealthy_configmap: bool = False,
    *,
    slots: int = 0,
    nvidia_whole: bool = False,
    fails: bool = True,
    mps_status: str = "",
    discovery: str = discovering.OFF,
) -> int:
    from gpushare.node import app

    name, address, port = identity(args)
    if args.memory_unit not in UNITS:
        raise unknown("memory unit", args.memory_unit, UNITS, "--memory-unit {}")
    reserve = args.reserve
    digits = reserve.isascii() and reserve.isdecimal() and len(reserve) <= len(str(MOST_RESERVED))
    if not (digits and int(reserve) <= MOST_RESERVED):
        raise errors.UserError(f'"{reserve:.20}" is not an amount to reserve', "it is a number of MiB", "--reserve 512")
    config = app.Config(
        name, args.memory_unit, pin, int(reserve), address, port, visible, unhealthy_configmap, slots=slots,
        nvidia_whole=nvidia_whole, mps_status=mps_status, observing=observing.config(args), fail_on_init_error=fails,
        discovery=discovering.config(discovery),
    )  # fmt: skip
    return _until_ended(args, lambda access, gpus: app.run(config, access, gpus))


def _address(address: str) -> str:
    if not address:
        why = "an empty one would mean every address of this machine"
        raise errors.UserError('"" is not an address', why, "--listen 127.0.0.1, or 0.0.0.0 for every one")
    return address


def _ports(words: Sequence[str]) -> list[int]:
    from_environment = os.environ.get("PORT")
    if from_environment:
        return _port_numbers([from_environment], "PORT=12345")
    return _port_numbers(words, "--port 12345")


def _port_numbers(words: Sequence[str], way: str) -> list[int]:
    for word in words:
        if not (word.isascii() and word.isdecimal() and len(word) <= 5 and 0 < int(word) < 65536):
            raise errors.UserError(f'"{word}" is not a port', "ports are numbers from 1 to 65535", way)
    return list(dict.fromkeys(map(int, words)))
