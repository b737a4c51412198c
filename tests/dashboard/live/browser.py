"""What a browser makes of a snapshot and of the messages after it."""

import base64
import gzip
import json
import zlib
from itertools import accumulate
from typing import Any

from gpushare.dashboard.live.ticks import Ticks


def event(frame: bytes) -> tuple[str, str, dict[str, Any]]:
    """The id, name and content of a frame."""
    lines = frame.decode().removesuffix("\n\n").split("\n")
    fields = dict(line.split(": ", 1) for line in lines)
    data = fields["data"]
    content = json.loads(zlib.decompress(base64.b64decode(data), -zlib.MAX_WBITS)) if data else {}
    return fields["id"], fields["event"], content


def decoded(body: bytes) -> dict[str, Any]:
    """A snapshot with plain numbers: ids and pods are sent as differences, and what is free beyond what is expected."""
    state: dict[str, Any] = json.loads(gzip.decompress(body))
    gpus = state["gpus"]
    for of, name in (("nodes", "id"), ("gpus", "id"), ("shares", "pod")):
        state[of][name] = list(accumulate(state[of][name]))
    rows = zip(gpus["total"], gpus["granted"], gpus["free"], strict=True)
    gpus["free"] = [total - granted + more for total, granted, more in rows]
    return state


class Browser:
    def __init__(self, ticks: Ticks) -> None:
        self._ticks = ticks
        self.resets = 0
        self.load()
        self.leave = ticks.subscribe(self.take)

    def load(self) -> None:
        self.tag, body = self._ticks.snapshot_body()
        self.state: dict[str, Any] = decoded(body)

    def take(self, frame: bytes) -> None:
        tag, name, content = event(frame)
        if name == "reset":
            self.resets += 1
            self.load()
            return
        assert int(tag.split(".")[1]) == int(self.tag.split(".")[1]) + 1, "a message was missed"
        self.tag = tag
        self._add(content)

    def _add(self, content: dict[str, Any]) -> None:
        gpus, nodes = self.state["gpus"], self.state["nodes"]
        row = {number: at for at, number in enumerate(gpus["id"])}
        changed = content.get("g", {"id": []})
        ids = list(accumulate(changed["id"]))
        for name, column in changed.items():
            for number, difference in zip(ids, column, strict=True):
                if name != "id":
                    gpus[name][row[number]] += difference
        self._replace_shares(content.get("s", {}), row)
        for number, fields in content.get("n", {}).items():
            for name, value in fields.items():
                nodes[name][nodes["id"].index(int(number))] = value
        for key in ("waiting", "unplaced"):
            self.state[key] = content.get(key, self.state[key])

    def _replace_shares(self, changed: dict[str, Any], row: dict[int, int]) -> None:
        shares, counts = self.state["shares"], self.state["gpus"]["shares"]
        rows = list(zip(shares["pod"], shares["ns"], shares["granted"], strict=True))
        starts = [0, *accumulate(counts)]
        by_gpu = [rows[start : start + count] for start, count in zip(starts, counts, strict=False)]
        for number, there in changed.items():
            by_gpu[row[int(number)]] = there
        self.state["gpus"]["shares"] = [len(there) for there in by_gpu]
        flat = [share for there in by_gpu for share in there]
        self.state["shares"] = {name: [s[at] for s in flat] for at, name in enumerate(("pod", "ns", "granted"))}

    def sees(self) -> dict[str, Any]:
        return shown(self.state)


def shown(state: dict[str, Any]) -> dict[str, Any]:
    """All but what depends on the moment."""
    nodes = {name: column for name, column in state["nodes"].items() if name != "age"}
    return {"nodes": nodes, **{key: state[key] for key in ("tables", "gpus", "shares", "waiting", "unplaced")}}
