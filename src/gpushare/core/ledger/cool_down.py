"""Cool-downs: a node whose kubelet refused a pod is not offered pods of that shape for a while, longer each time.

Pure; time comes in as an argument. A cool-down that has ended is remembered for ten minutes, so that a refusal within
that time makes the next one longer.
"""

from gpushare.core.facts.model import Kind, Pin, Request, Role

SECONDS = (10.0, 300.0)  # the first cool-down, and the longest
RECALL_SECONDS = 600.0  # after its end: a refusal within that time makes the next cool-down longer
MOST = 1_000  # on one node; only a tenant who has pods of all sizes refused can reach that

Shares = tuple[Pin | None, tuple[tuple[Role, Kind, int, int], ...]]
"""A shape without its unit: all requests that fit a node are counted in the node's unit."""


class CoolDown:
    __slots__ = ("active", "length", "until")

    def __init__(self, until: float, length: float) -> None:
        self.until = until
        self.length = length
        self.active = True


class CoolDowns:
    """The cool-downs of one node, by shape."""

    __slots__ = ("_by_shape",)

    def __init__(self) -> None:
        self._by_shape: dict[Shares, CoolDown] = {}

    def __len__(self) -> int:
        """How many are active or remembered."""
        return len(self._by_shape)

    @property
    def is_any_active(self) -> bool:
        return bool(self._by_shape) and any(cool_down.active for cool_down in self._by_shape.values())

    def is_cooling_down(self, request: Request) -> bool:
        cool_down = self._by_shape.get(_shape(request)) if self._by_shape else None
        return cool_down is not None and cool_down.active

    def start(self, request: Request, now: float) -> None:
        """kubelet refused such a pod. During a cool-down only pods sent before it are refused: they do not make it
        longer."""
        length, longest = SECONDS
        before = self._by_shape.pop(_shape(request), None)
        if before is not None:
            length = before.length if before.active else min(before.length * 2, longest)
        while len(self._by_shape) >= MOST:
            del self._by_shape[next(iter(self._by_shape))]  # the oldest
        self._by_shape[_shape(request)] = CoolDown(now + length, length)

    def forget(self, request: Request) -> bool:
        """Such a pod runs here: the node takes them. Returns whether there was a cool-down."""
        return self._by_shape.pop(_shape(request), None) is not None

    def clear(self) -> None:
        self._by_shape.clear()

    def expire(self, now: float) -> bool:
        """End those whose time is over, and say whether there were any."""
        ended = [cool_down for cool_down in self._by_shape.values() if cool_down.active and cool_down.until <= now]
        for cool_down in ended:
            cool_down.active = False
        for shape in [shape for shape, one in self._by_shape.items() if one.until + RECALL_SECONDS <= now]:
            del self._by_shape[shape]
        return bool(ended)


def _shape(request: Request) -> Shares:
    pin, _, _, shares = request.shape
    return pin, shares
