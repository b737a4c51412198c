"""The pods that wait, as lines below the table: one each. `gpushare why` says more about one of them."""

from collections.abc import Sequence

from gpushare.ctl.inspect import table
from gpushare.view import wording
from gpushare.view.why.waiting import Waiting, why

MOST = 10  # pods in the list, except with -o wide
FOR_MEMORY, FOR_GPUS = "Waiting for GPU memory: {count}", "Waiting for GPUs: {count}"
_COLUMNS = ("NAMESPACE", "NAME", "ASKS", "AGE", "WHY")


def lines(shown: Sequence[Waiting], now: float, *, count: int) -> list[str]:
    """The list as text; nothing if no pod waits. `count`: all that wait, of which these are shown."""
    if not count:
        return []
    rows = [[one.namespace, one.name, one.answer.asks, wording.age(one.created, now), why(one.answer)] for one in shown]
    title = FOR_GPUS if any(one.answer.by_count for one in shown) else FOR_MEMORY
    rest = count - len(shown)
    more = [f"and {wording.count(rest, 'more pod')}: -o wide"] if rest else []
    return [title.format(count=wording.count(count, "pod")), *table.plain_rows([_COLUMNS, *rows]), *more]
