"""What a Prometheus server remembers of GPUs and of the cluster: for times before this process, and for seven days.

Asked only when a page wants it. Time and size of an answer are bounded. What fails becomes one sentence, and the page
shows what is in memory. The names are those of docs/metrics.md.
"""

import asyncio
import math
from typing import Any

import aiohttp
import msgspec
from yarl import URL

POINTS = 300  # of a series
TIMEOUT_SECONDS = 10.0
MOST_BYTES = 8_000_000  # of one answer
MOST_SHARES = 200  # of one GPU in seven days
MOST_AMOUNT = 1e15
MIB = 1 << 20

NO_ANSWER = "Prometheus at {host} gave no answer within {seconds:g} s"
NOT_REACHED = "Prometheus at {host} cannot be reached: {why}"
REFUSED = "Prometheus at {host} refused: {why}"
NOT_READ = "the answer of {host} is not one of Prometheus"
TOO_LONG = "the answer of Prometheus at {host} is too long"
NOTHING = "Prometheus at {host} knows nothing of that time: does it scrape gpushare? docs/metrics.md"

Series = dict[float, float]
"""Values by time."""


class PrometheusError(Exception):
    """In one sentence."""


class _Row(msgspec.Struct):
    metric: dict[str, str] = {}
    values: list[tuple[float, str]] = []


class _Data(msgspec.Struct):
    result: list[_Row] = []


class _Answer(msgspec.Struct):
    status: str = ""
    error: str = ""
    data: _Data = msgspec.field(default_factory=_Data)


class Prometheus:
    def __init__(self, url: str, session: aiohttp.ClientSession, timeout: float = TIMEOUT_SECONDS) -> None:
        """`url`: with or without a path, as people put it into Grafana. It may have a name and a password."""
        self._url, self._session, self._timeout = URL(url), session, timeout
        self.host = self._url.authority.rpartition("@")[2]

    async def gpu(self, node: str, uuid: str, index: int, start: float, end: float) -> dict[str, Any]:
        """The columns of `History.gpu`. A PrometheusError says what went wrong."""
        who = f'UUID="{_quoted(uuid)}"' if uuid else f'node="{_quoted(node)}",gpu="{index}"'
        dcgm = f'UUID="{_quoted(uuid)}"' if uuid else f'Hostname="{_quoted(node)}",gpu="{index}"'
        labels = "by (namespace, pod, pod_uid)"
        queries = {
            "total": f"max(gpushare_gpu_memory_total_bytes{{{who}}}) / {MIB}",
            "granted": f"max(gpushare_gpu_memory_granted_bytes{{{who}}}) / {MIB}",
            "used": f"max(DCGM_FI_DEV_FB_USED{{{dcgm}}}) or "
            f"(sum(gpushare_container_memory_used_bytes{{{who}}}) + "
            f"max(gpushare_gpu_memory_unattributed_bytes{{{who}}})) / {MIB}",
            "util": f"max(DCGM_FI_DEV_GPU_UTIL{{{dcgm}}})",
            "temp": f"max(DCGM_FI_DEV_GPU_TEMP{{{dcgm}}})",
            "power": f"max(DCGM_FI_DEV_POWER_USAGE{{{dcgm}}})",
            "share used": f"sum {labels} (gpushare_container_memory_used_bytes{{{who}}}) / {MIB}",
            "share granted": f"sum {labels} (gpushare_container_memory_granted_bytes{{{who}}}) / {MIB}",
        }
        answers = await self._ask_all(queries, start, end)
        times = sorted({time for rows in answers.values() for row in rows for time, _ in row.values})
        if not times:
            raise PrometheusError(NOTHING.format(host=self.host))
        columns = {name: _column(_only(answers[name]), times) for name in queries if not name.startswith("share")}
        shares = _shares(answers["share used"], answers["share granted"], times)
        return {"times": times, **columns, "shares": shares, "source": "prometheus", "from": times[0], "note": ""}

    async def cluster(self, start: float, end: float) -> dict[str, Any]:
        """The columns of `History.cluster`."""
        each = "max by (node, gpu)"
        queries = {
            "total": f"sum({each} (gpushare_gpu_memory_total_bytes)) / {MIB}",
            "granted": f"sum({each} (gpushare_gpu_memory_granted_bytes)) / {MIB}",
            "used": "sum(max by (UUID) (DCGM_FI_DEV_FB_USED)) or (sum(gpushare_container_memory_used_bytes) + "
            f"sum({each} (gpushare_gpu_memory_unattributed_bytes))) / {MIB}",
            "waiting": "max by (code) (gpushare_waiting_pods)",
        }
        answers = await self._ask_all(queries, start, end)
        times = sorted({time for rows in answers.values() for row in rows for time, _ in row.values})
        if not times:
            raise PrometheusError(NOTHING.format(host=self.host))
        waits = {row.metric.get("code", ""): _column(_series(row), times) for row in answers["waiting"]}
        columns = {name: _column(_only(answers[name]), times) for name in ("total", "granted", "used")}
        codes = {code: waits[code] for code in sorted(waits) if any(waits[code])}
        return {"times": times, **columns, "waiting": codes, "source": "prometheus", "from": times[0], "note": ""}

    async def _ask_all(self, queries: dict[str, str], start: float, end: float) -> dict[str, list[_Row]]:
        step = max(round((end - start) / POINTS), 15)
        try:
            async with asyncio.timeout(self._timeout):
                # One after the other: a page has few queries, and Prometheus counts those at the same time.
                return {name: await self._ask(query, start, end, step) for name, query in queries.items()}
        except TimeoutError:
            raise PrometheusError(NO_ANSWER.format(host=self.host, seconds=self._timeout)) from None
        except (aiohttp.ClientError, OSError) as error:
            why = str(error) or type(error).__name__
            raise PrometheusError(NOT_REACHED.format(host=self.host, why=why)) from None

    async def _ask(self, query: str, start: float, end: float, step: int) -> list[_Row]:
        # All queries of a page have the same times, so that their columns have.
        asked = {"query": query, "start": str(start // step * step), "end": str(end), "step": str(step)}
        url = self._url / "api/v1/query_range"
        async with self._session.get(url, params=asked, allow_redirects=False) as answer:
            body = await _bounded(answer)
        if body is None:
            raise PrometheusError(TOO_LONG.format(host=self.host))
        try:
            decoded = _answers.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            if answer.status == 200:
                raise PrometheusError(NOT_READ.format(host=self.host)) from None
            raise PrometheusError(REFUSED.format(host=self.host, why=f"HTTP {answer.status}")) from None
        if decoded.status != "success":
            why = _printable(decoded.error) or f"HTTP {answer.status}"
            raise PrometheusError(REFUSED.format(host=self.host, why=why))
        return decoded.data.result


async def _bounded(answer: aiohttp.ClientResponse) -> bytes | None:
    """The body; None if it is too long."""
    parts, size = [], 0
    async for part in answer.content.iter_any():
        size += len(part)
        if size > MOST_BYTES:
            return None
        parts.append(part)
    return b"".join(parts)


def _series(row: _Row) -> Series:
    """Its values, as far as they are amounts: NaN and infinity are none."""
    found = [(time, _number(value)) for time, value in row.values]
    return {time: value for time, value in found if abs(value) < MOST_AMOUNT}


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return math.nan


def _only(rows: list[_Row]) -> Series:
    """An `or` of two queries may have two rows, of different times."""
    merged: Series = {}
    for row in rows:
        merged |= _series(row)
    return merged


def _column(series: Series, times: list[float]) -> list[int | None]:
    return [round(series[time]) if time in series else None for time in times]


def _shares(used: list[_Row], granted: list[_Row], times: list[float]) -> list[dict[str, Any]]:
    amounts = {_whose(row): _series(row) for row in used}
    found = []
    for row in granted[:MOST_SHARES]:
        namespace, pod, uid = _whose(row)
        columns = {"granted": _column(_series(row), times), "used": _column(amounts.get(_whose(row), {}), times)}
        found.append({"namespace": namespace, "pod": pod, "uid": uid, "number": None, **columns})
    return found


def _whose(row: _Row) -> tuple[str, str, str]:
    return row.metric.get("namespace", ""), row.metric.get("pod", ""), row.metric.get("pod_uid", "")


def _quoted(label: str) -> str:
    """As the value of a label in a query."""
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)[:300]


_answers = msgspec.json.Decoder(_Answer)
