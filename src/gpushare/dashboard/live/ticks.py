"""Once a second: what changed becomes one message, which is encoded once and sent to everybody.

A browser that was away gets the messages it missed, if they are of the last two minutes; else it reads the snapshot
again. So it does when nodes or GPUs come or go, which a message of differences cannot say.
"""

import asyncio
import gzip
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec

from gpushare.dashboard.live import columns, delta
from gpushare.dashboard.live.cluster import Live
from gpushare.dashboard.live.columns import Row, Tables
from gpushare.dashboard.live.history import History
from gpushare.dashboard.live.sums import Cluster
from gpushare.dashboard.live.waits import Counts, Waiting
from gpushare.obs import log

TICK_SECONDS = 1.0
KEPT_FRAMES = 120
RESET_SECONDS = 2.0  # at least, between two resets
SNAPSHOT_LEVEL = 6  # of compression

Client = Callable[[bytes], None]

logger = log.get(__name__)


class Ticks:
    def __init__(
        self,
        live: Live,
        history: History,
        *,
        epoch: str,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """`epoch`: a word of this process, which no other has: numbers and messages mean nothing to others."""
        self.epoch, self.seq = epoch, 0
        self.waiting = Counts()
        self._live, self._history = live, history
        self._now, self._clock, self._sleep = now, clock, sleep
        self._waiting = Waiting(live, clock)
        self._tables = Tables(live.numbers)
        self._rows: dict[str, Row] = {}
        self._words = self._tables.size  # when they were last sent
        self._time = now()
        self._frames: deque[tuple[int, bytes]] = deque(maxlen=KEPT_FRAMES)
        self._first = 1  # the first message after which nothing was reset
        self._reset_due, self._last_reset = False, float("-inf")
        self._sampled = float("-inf")
        self._body: tuple[int, bytes] | None = None
        self._clients: dict[int, Client] = {}
        self._next_client = 0

    async def run(self) -> None:
        """For ever."""
        due = self._clock()
        while True:
            self.tick()
            due += TICK_SECONDS
            if due <= self._clock():  # the machine was asleep: nothing is made up for
                due = self._clock() + TICK_SECONDS
            await self._sleep(due - self._clock())

    def snapshot_body(self) -> tuple[str, bytes]:
        """Its ETag, and itself as JSON, compressed: at most once a tick, and only if somebody asks."""
        if self._body is None or self._body[0] != self.seq:
            self._body = self.seq, gzip.compress(msgspec.json.encode(self.snapshot()), SNAPSHOT_LEVEL, mtime=0)
        return f"{self.epoch}.{self.seq}", self._body[1]

    def snapshot(self) -> dict[str, Any]:
        """Everything, as after the last message."""
        rows = [self._rows[name] for name in sorted(self._rows)]
        head = {"v": delta.VERSION, "epoch": self.epoch, "seq": self.seq, "time": round(self._time, 1)}
        found = delta.whole(rows, self._tables, self._time)
        return head | {"ages": self._ages()} | found | {"waiting": msgspec.to_builtins(self.waiting)}

    def since(self, epoch: str, seq: int) -> list[bytes] | None:
        """The messages after this one; None: they are not kept any more, or of another process."""
        oldest = max(self._first, self._frames[0][0] if self._frames else self.seq + 1)
        if epoch != self.epoch or not oldest - 1 <= seq <= self.seq:
            return None
        return [frame for number, frame in self._frames if number > seq]

    def subscribe(self, client: Client) -> Callable[[], None]:
        """From now on `client` is called with each message; it must not block. The result ends that."""
        number = self._next_client
        self._next_client += 1
        self._clients[number] = client
        return lambda: self._clients.pop(number, None) and None

    def tick(self) -> None:
        """Works out what changed, and tells everybody."""
        self._time = self._now()
        pairs = list(self._renewed(self._time))
        if any(delta.is_other_shape(before, after) for before, after in pairs) or self._tables.size != self._words:
            self._reset_due, self._words = True, self._tables.size
        counted, self.waiting = self.waiting, self._waiting.counts()
        if self._time - self._sampled >= self._history.step or self._time < self._sampled:
            self._sampled = self._time
            self._history.sample(self._time, self._cluster())
        if not self._reset_due:
            same = [(before, after) for before, after in pairs if before is not None and after is not None]
            self._send_changes(same, waiting=self.waiting if self.waiting != counted else None)
        elif self._clock() - self._last_reset >= RESET_SECONDS:
            self._reset_due, self._last_reset = False, self._clock()
            self._send("reset", b"")
            self._first = self.seq + 1

    def _renewed(self, now: float) -> Iterator[tuple[Row | None, Row | None]]:
        """The rows of nodes that changed or whose figures became too old: before, and now."""
        late = [name for name, row in self._rows.items() if row.until < now]
        for name in sorted(self._live.take_touched().union(late)):
            before, after = self._rows.get(name), self._row(name, now)
            if after is None:
                self._rows.pop(name, None)
                self._history.forget_node(name, now)
            else:
                self._rows[name] = after
                self._history.see(after, now)
            if before is not None or after is not None:
                yield before, after

    def _row(self, name: str, now: float) -> Row | None:
        node = self._live.nodes.by_name.get(name)
        if node is None:
            return None
        buyers = list(self._live.pods.buyers.get(name, {}).values())
        status = self._live.doing.by_node.get(name)
        return columns.row(node, self._live.ledger, buyers, status, now, self._tables)

    def _send_changes(self, pairs: list[tuple[Row, Row]], waiting: Counts | None) -> None:
        message = {"t": round(self._time, 1), "ages": self._ages(), **delta.changes(pairs, self._time)}
        if waiting is not None:
            message["waiting"] = msgspec.to_builtins(waiting)
        if any(before.unplaced != after.unplaced for before, after in pairs):
            message["unplaced"] = sum(row.unplaced for row in self._rows.values())
        self._send("delta", delta.encoded(message))

    def _send(self, event: str, data: bytes) -> None:
        self.seq += 1
        frame = f"id: {self.epoch}.{self.seq}\nevent: {event}\ndata: ".encode() + data + b"\n\n"
        self._frames.append((self.seq, frame))
        for client in list(self._clients.values()):
            client(frame)

    def _ages(self) -> dict[str, Any]:
        ages = self._live.ages()
        use = -1 if ages.use is None else round(ages.use, 1)
        return {"watch": round(ages.watch, 1), "use": use, "failure": ages.failure}

    def _cluster(self) -> Cluster:
        """Sums of all GPUs. Of what is used those count that tell it; -1: none does."""
        pairs = [zip(row.gpus, row.figures, strict=True) for row in self._rows.values()]
        found = [(gpu.total, figures) for pair in pairs for gpu, figures in pair]
        shared = [(total, figures) for total, figures in found if figures.granted != columns.UNKNOWN]
        used = [figures.used for _, figures in found if figures.used != columns.UNKNOWN]
        return Cluster(
            total=sum(total for total, _ in shared),
            granted=sum(figures.granted for _, figures in shared),
            used=sum(used) if used else columns.UNKNOWN,
            waiting=self.waiting.codes,
        )
