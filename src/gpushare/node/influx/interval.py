"""How often points are written: `--influx-interval`, or what KETI's ConfigMap says, at once when it changes.

The ConfigMap is optional, and so is the right to read it: without either the option holds.
"""

from collections.abc import Set
from typing import Any, Final

from gpushare.core.facts import objects
from gpushare.kube import resources
from gpushare.kube.client import Api
from gpushare.kube.reflector import Reflector
from gpushare.obs import log

NAMESPACE: Final = "gpu"
NAME: Final = "gpu-metric-collector-configmap"
KEY: Final = "metric-collecting-interval"
QUERY: Final = {"fieldSelector": f"metadata.name={NAME}"}
DEFAULT: Final = 10.0  # seconds
LONGEST: Final = 3600
SILENCE, PATIENCE = 75.0, 300.0  # there may be thousands of nodes

logger = log.get(__name__)


def seconds(text: str) -> float | None:
    """None: this is no interval."""
    text = text.strip()
    plain = text.isascii() and text.isdecimal() and len(text) <= len(str(LONGEST))
    return float(text) if plain and 0 < int(text) <= LONGEST else None


class Interval:
    """`seconds` is what holds now."""

    def __init__(self, given: float) -> None:
        self.seconds = given
        self._given = given

    def upsert(self, item: objects.ConfigMap) -> None:
        text = (item.data or {}).get(KEY)
        if text is None:
            self._set(self._given)
            return
        found = seconds(text)
        if found is None:
            why = f'{KEY} is "{text:.20}", not a whole number of seconds from 1 to {LONGEST}'
            logger.warn("ConfigMap ignored, the interval stays", name=NAME, why=why, seconds=self.seconds)
            return
        self._set(found)

    def remove(self, item: objects.ConfigMap) -> None:
        self._set(self._given)

    def relisted(self, kept: Set[str]) -> None:
        if NAME not in kept:
            self._set(self._given)

    def _set(self, found: float) -> None:
        if found != self.seconds:
            logger.info("points are written to InfluxDB at another interval", seconds=found)
        self.seconds = found


def watch(api: Api, interval: Interval, **more: Any) -> Reflector[objects.ConfigMap]:
    return Reflector(
        api, resources.CONFIG_MAPS, objects.ConfigMap, interval, key=lambda item: item.metadata.name,
        namespace=NAMESPACE, query=QUERY, silence=SILENCE, patience=PATIENCE, optional=True, **more,
    )  # fmt: skip
