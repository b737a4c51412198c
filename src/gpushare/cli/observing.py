"""The options of a node part that are about what GPUs really do: how often they are sampled, and who is told.

The same for all ways to sell GPUs. `--help-metrics` explains them (`help.NODE_METRICS`).
"""

import argparse
from typing import TYPE_CHECKING, Final

from gpushare.cli import exporting
from gpushare.cli.words import Parser
from gpushare.obs import errors

if TYPE_CHECKING:
    from gpushare.node.observer import Config

SWITCH: Final = "--help-metrics"
MOST_SECONDS: Final = 3600.0


def add(parser: Parser) -> None:
    parser.add_argument("--sample-seconds", default="5")
    exporting.add(parser)


def config(args: argparse.Namespace) -> "Config":
    from gpushare.node.observer import Config

    return Config(
        sample_seconds=_seconds(args.sample_seconds, "--sample-seconds 5"),
        exporter=exporting.config(args),
    )


def _seconds(text: str, way: str) -> float:
    """A number of seconds, also with a fraction."""
    plain = text.isascii() and len(text) <= 8 and text.replace(".", "", 1).isdecimal()
    if not (plain and 0 < float(text) <= MOST_SECONDS):
        why = f"it is a number of seconds, more than 0 and at most {MOST_SECONDS:.0f}"
        raise errors.UserError(f'"{text:.20}" is not an interval', why, way)
    return float(text)
