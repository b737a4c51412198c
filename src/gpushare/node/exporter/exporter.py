"""The metrics of a node as one page: what GPUs do, and what this process counts of itself.

The port for probes and the one for Prometheus answer with the same page. It is written when it is asked for: nothing
is kept for that.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, NamedTuple

from prometheus_client import CollectorRegistry

from gpushare.kube.scraping.server import Listening
from gpushare.node.exporter import counters
from gpushare.node.exporter.page import Counted, HostnameLabel, Wanted, page
from gpushare.node.usage.model import Usage
from gpushare.obs import log, metrics
from gpushare.obs.errors import UserError

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
MOST_BYTES: Final = 1 << 20  # of a counters file

DcgmNames = Literal["auto", "on", "off"]

logger = log.get(__name__)


class Config(NamedTuple):
    """`listen`: None if only the port for probes answers. `dcgm_names`: NVIDIA's names; auto: unless its own exporter
    runs on this node. `counters`: a file that says which of them; empty: all."""

    listen: Listening | None = None
    dcgm_names: DcgmNames = "auto"
    hostname_label: HostnameLabel = "Hostname"
    counters: str = ""


class Exporter:
    """`usage` is None until this node has published its GPUs. `dcgm_runs`: whether NVIDIA's exporter does, here."""

    def __init__(
        self,
        config: Config,
        registry: CollectorRegistry,
        *,
        usage: Callable[[], Usage | None],
        counted: Callable[[], Counted],
        dcgm_runs: Callable[[], bool],
    ) -> None:
        self._registry, self._usage, self._counted, self._dcgm_runs = registry, usage, counted, dcgm_runs
        self._names = config.dcgm_names
        wanted = _read(config.counters) if config.counters else Wanted()
        self._wanted = wanted._replace(hostname_label=config.hostname_label)

    def page(self) -> tuple[bytes, str]:
        """With its content type."""
        own, usage = metrics.exposition(self._registry)[0], self._usage()
        if usage is None:
            return own, CONTENT_TYPE
        return page(usage, self._counted(), self._wanted if self._with_dcgm() else None).encode() + own, CONTENT_TYPE

    def _with_dcgm(self) -> bool:
        return self._names == "on" or (self._names == "auto" and not self._dcgm_runs())


def _read(path: str) -> Wanted:
    way = "--counters FILE, a file of dcgm-exporter such as default-counters.csv"
    try:
        with Path(path).open("rb") as file:
            text = file.read(MOST_BYTES + 1).decode()
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read the counters in {path}", str(error), way) from error
    if len(text) > MOST_BYTES:
        raise UserError(f"cannot read the counters in {path}", "the file is larger than 1 MiB", way)
    found = counters.read(text, path)
    if found.left_out:
        logger.warn("these counters need DCGM itself and are left out", counters=", ".join(found.left_out))
    return found.wanted
