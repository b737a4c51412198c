"""The option of a node part that is about labels: whether, and how, they say what GPUs a node has."""

import os
from typing import TYPE_CHECKING, Final

from gpushare.cli.words import Parser, unknown

if TYPE_CHECKING:
    from gpushare.node.discovery.discovery import Config

OFF: Final = "off"


def add(parser: Parser) -> None:
    parser.add_argument("--discovery", default=OFF)


def config(word: str) -> "Config | None":
    """None: no labels. A NodeFeature is made where this pod runs, as its variables say."""
    from gpushare.kube.labels.writer import WAYS
    from gpushare.node.discovery.discovery import Config

    if word == OFF:
        return None
    for way in WAYS:
        if way == word:
            return Config(way, os.environ.get("POD_NAMESPACE") or "kube-system", os.environ.get("POD_NAME", ""))
    raise unknown("--discovery value", word, (OFF, *WAYS), "--discovery={}")
