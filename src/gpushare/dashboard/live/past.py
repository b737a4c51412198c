"""Which memory answers a page: this process's own, or that of a Prometheus server for what is older."""

from collections.abc import Awaitable, Callable
from typing import Any

from gpushare.dashboard.live.history import KEPT_SECONDS, RANGES, History
from gpushare.dashboard.live.prometheus import Prometheus, PrometheusError

SLACK_SECONDS = 600.0  # so much may be missing at the beginning before Prometheus is asked

Columns = dict[str, Any]


class Past:
    def __init__(self, history: History, prometheus: Prometheus | None, now: Callable[[], float]) -> None:
        self._history, self._prometheus, self._now = history, prometheus, now

    async def gpu(self, node: str, key: str, index: int, range_: str) -> Columns:
        """What a GPU did. `key`: its UUID, or its index where it has none."""
        now, uuid = self._now(), "" if key == str(index) else key
        own = self._history.gpu(node, key, range_, now)
        if self._prometheus is None or self._is_enough(range_, now):
            return own
        asked = self._prometheus.gpu(node, uuid, index, now - RANGES[range_], now)
        return await _or_own(asked, own)

    async def cluster(self, range_: str) -> Columns:
        """What the whole cluster did."""
        now = self._now()
        own = self._history.cluster(range_, now)
        if self._prometheus is None or self._is_enough(range_, now):
            return own
        return await _or_own(self._prometheus.cluster(now - RANGES[range_], now), own)

    def _is_enough(self, range_: str, now: float) -> bool:
        begun, seconds = self._history.begun, RANGES[range_]
        return seconds <= KEPT_SECONDS and begun is not None and begun <= now - seconds + SLACK_SECONDS


async def _or_own(asked: Awaitable[Columns], own: Columns) -> Columns:
    try:
        return await asked
    except PrometheusError as error:
        return {**own, "note": str(error)}
