"""`make bench`: runs every benchmark and prints name, value, value in reference time, budget, ok; `ARGS="-o json"` one
JSON object a line. A budget is kept if the value in reference time is within it (`bench.yardstick`).

`ARGS="-k WORD"` runs those whose file or figure has that word. Exit code 1 if a budget is missed.
"""

import argparse
import sys
from collections.abc import Iterator

from bench import (
    ctl,
    dashboard,
    events,
    exporter,
    fair,
    hard,
    http,
    node,
    observing,
    operator,
    packing,
    plugin,
    sampling,
    scored,
    selling,
    sync,
    verbs,
    webhook,
)
from bench.result import HEADER, TIMES, Result
from bench.yardstick import HERE

BENCHMARKS = {
    "verbs": verbs.run, "scored": scored.run, "http": http.run, "events": events.run, "sync": sync.run,
    "ctl": ctl.run, "node": node.run, "plugin": plugin.run, "selling": selling.run, "hard": hard.run, "fair": fair.run,
    "webhook": webhook.run, "sampling": sampling.run, "exporter": exporter.run, "observing": observing.run,
    "operator": operator.run, "packing": packing.run, "dashboard": dashboard.run,
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench", description="CPU time of gpushare's hot paths, with budgets.")
    parser.add_argument("-o", "--output", choices=["json"], help="one JSON object a line instead of a table")
    parser.add_argument("-k", default="", metavar="WORD", help=f"only {', '.join(BENCHMARKS)}")
    given = parser.parse_args()
    results: list[Result] = []
    if not given.output:
        print(HEADER)
    for name, run in BENCHMARKS.items():
        for result in _judged(run()) if given.k in name else ():
            results.append(result)
            print(result.as_json() if given.output else result.as_row(), flush=True)
    missed = [result.name for result in results if not result.ok]
    slow = [result.slowness for result in results if result.unit in TIMES] or [1.0]
    print(f"{len(results) - len(missed)} of {len(results)} within budget, in reference time", file=sys.stderr)
    print(f"work took {min(slow):.2f} to {max(slow):.2f} times as long as on the reference machine", file=sys.stderr)
    return 1 if missed else 0


def _judged(results: Iterator[Result]) -> Iterator[Result]:
    HERE.look()
    for result in results:
        HERE.look()
        yield result.measured_with(HERE.take())


if __name__ == "__main__":
    sys.exit(main())
