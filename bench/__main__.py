"""`make bench`: runs every benchmark and prints name, value, budget, ok; `ARGS="-o json"` one JSON object a line.

`ARGS="-k WORD"` runs those whose file or figure has that word. Exit code 1 if a budget is missed.
"""

import argparse
import sys

from bench import (
    ctl,
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
from bench.result import Result

BENCHMARKS = {
    "verbs": verbs.run, "scored": scored.run, "http": http.run, "events": events.run, "sync": sync.run,
    "ctl": ctl.run, "node": node.run, "plugin": plugin.run, "selling": selling.run, "hard": hard.run, "fair": fair.run,
    "webhook": webhook.run, "sampling": sampling.run, "exporter": exporter.run, "observing": observing.run,
    "operator": operator.run, "packing": packing.run,
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench", description="CPU time of gpushare's hot paths, with budgets.")
    parser.add_argument("-o", "--output", choices=["json"], help="one JSON object a line instead of a table")
    parser.add_argument("-k", default="", metavar="WORD", help=f"only {', '.join(BENCHMARKS)}")
    given = parser.parse_args()
    results: list[Result] = []
    if not given.output:
        print(f"{'name':<62}{'value':>10} {'':<6}{'budget':>14}  ok")
    for name, run in BENCHMARKS.items():
        for result in run() if given.k in name else ():
            results.append(result)
            print(result.as_json() if given.output else result.as_row(), flush=True)
    missed = [result.name for result in results if not result.ok]
    print(f"{len(results) - len(missed)} of {len(results)} within budget", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
