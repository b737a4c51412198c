"""The options of a node part that are about what GPUs really do: how often they are sampled, and who is told.

The same for all ways to sell GPUs. `--help-metrics` explains them (`help.NODE_METRICS`).
"""

import argparse
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpushare.cli import exporting
from gpushare.cli.words import Parser, unknown
from gpushare.obs import errors

if TYPE_CHECKING:
    from gpushare.node.observer import Config
    from gpushare.node.usage.overuse import Tolerance

SWITCH: Final = "--help-metrics"
MOST_SECONDS: Final = 3600.0
LEAST_SAMPLE_SECONDS: Final = 0.1  # a driver that is asked more often does little else
ON_OVERUSE: Final = ("warn", "evict")
TOLERANCE: Final = re.compile(
    r"(?:(?P<percent>\d{1,4})%)?(?:(?:(?<=%),|(?<!%))(?P<amount>\d{1,7})(?P<unit>MiB|GiB))?", re.ASCII
)
MIB_IN: Final = {"MiB": 1, "GiB": 1024}


DEFAULTS: Final = {  # of the options that say what becomes of samples
    "proc": "",
    "overuse-tolerance": "5%,256MiB",
    "overuse-grace": "60",
    "on-overuse": "warn",
    "influx": "",
    "influx-interval": "10",
}


def add(parser: Parser) -> None:
    parser.add_argument("--sample-seconds", default="5")
    for name, default in DEFAULTS.items():
        parser.add_argument(f"--{name}", default=default)
    exporting.add(parser)


def config(args: argparse.Namespace) -> "Config":
    """`--sample-seconds 0`: nothing is sampled."""
    from gpushare.node.observer import Config

    if args.on_overuse not in ON_OVERUSE:
        raise unknown("action", args.on_overuse, ON_OVERUSE, "--on-overuse {}")
    samples = args.sample_seconds != "0"
    if not samples:
        _refuse_without_samples(args)
    return Config(
        sample_seconds=_seconds(args.sample_seconds, "--sample-seconds 5", LEAST_SAMPLE_SECONDS) if samples else 0.0,
        proc=_proc(args.proc),
        tolerance=_tolerance(args.overuse_tolerance),
        grace=_seconds(args.overuse_grace, "--overuse-grace 60"),
        evicts=args.on_overuse == "evict",
        exporter=exporting.config(args),
        influx=_influx(args.influx),
        influx_seconds=_seconds(args.influx_interval, "--influx-interval 10"),
    )


def _refuse_without_samples(args: argparse.Namespace) -> None:
    defaults = DEFAULTS | exporting.NVIDIAS_NAMES
    given = [f"--{name}" for name, default in defaults.items() if getattr(args, name.replace("-", "_")) != default]
    if given:
        why = "with --sample-seconds 0 nobody looks at what GPUs do"
        raise errors.UserError(f"{', '.join(given)} without samples", why, "leave it out, or --sample-seconds 5")


def _proc(folder: str) -> str:
    if folder and not Path(folder, "self").is_dir():
        why = "it is the folder in which the node's /proc is mounted"
        raise errors.UserError(
            f'"{folder:.80}" shows no processes', why, "--proc /host/proc, or hostPID: true without it"
        )
    return folder


def _tolerance(text: str) -> "Tolerance":
    """`5%,256MiB`, or one of both."""
    from gpushare.node.usage.overuse import Tolerance

    found = TOLERANCE.fullmatch(text)
    if found is None or not any(found.groups()):
        why = "it is a share of what a container asked for, an amount, or both: the larger one counts"
        raise errors.UserError(f'"{text:.20}" is not a tolerance', why, "--overuse-tolerance 5%,256MiB")
    percent, mib = int(found["percent"] or 0), int(found["amount"] or 0) * MIB_IN.get(found["unit"] or "MiB", 1)
    return Tolerance(percent / 100, mib << 20)


def _influx(url: str) -> str:
    """Credentials are in the environment only. What is wrong with them is said now, not when points are written."""
    from gpushare.node.influx import credentials

    if not url:
        return ""
    credentials.read(os.environ)
    return credentials.check_url(url)


def _seconds(text: str, way: str, least: float = 0.0) -> float:
    """A number of seconds, also with a fraction."""
    plain = text.isascii() and len(text) <= 8 and text.replace(".", "", 1).isdecimal()
    if not (plain and 0 < float(text) <= MOST_SECONDS and float(text) >= least):
        from_where = f"at least {least:g}" if least else "more than 0"
        why = f"it is a number of seconds, {from_where} and at most {MOST_SECONDS:.0f}"
        raise errors.UserError(f'"{text:.20}" is not an interval', why, way)
    return float(text)
