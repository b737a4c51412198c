"""`gpushare replay`: its help page and its options, a bar while it runs, and where the answer goes."""

import textwrap
import time
from typing import TYPE_CHECKING, Final

from gpushare.cli.commands import screen_of
from gpushare.cli.words import Parser, unknown
from gpushare.core.facts.policies import POLICIES
from gpushare.ctl import streams
from gpushare.obs.errors import UserError
from gpushare.view import wording

if TYPE_CHECKING:
    from gpushare.ctl.screen import Screen

KNOWN: Final = tuple([policy.name for policy in POLICIES.values() if policy.score is None])  # others go by measurements
_NAMES = f"\n{'':22}".join(textwrap.wrap(", ".join(KNOWN), 58))

PAGE: Final = f"""\
usage: {{program}} TRACE [--nodes FILE] --policy NAME[,NAME...] [options]
Places the pods of a file on the nodes of a file, in memory and without waiting,
by the code that the extender uses. Says how full the GPUs get by each policy.
  TRACE               pods: CSV, Alibaba's openb CSV, or JSON with nodes, too,
                      as gpushare snapshot writes it
  --nodes FILE        nodes: CSV, openb CSV or JSON
  --policy NAMES      {_NAMES}
  --seed S [S ...]    another order of pods and equal nodes for each (1)
  --arrivals FILE     these orders instead: an .npz with order_S and rank_S
  --load L            pods come, at random after those of TRACE, until they ask
                      for L times all GPUs; none ends (1.3; 10 at most)
  --departures        pods come and end when TRACE says, and wait for a place
  -o, --output FORMAT table, json, csv, or svg: a picture of all policies
  --color auto|always|never, --debug
Examples
  gpushare snapshot > my.json && {{program}} my.json --policy binpack,vrc
  {{program}} pods.csv --nodes nodes.csv --policy fgd,vrc -o svg > fgd.svg
Exit codes: 0 done, 2 bad input, 130 Ctrl-C"""

OUTPUTS: Final = ("table", "json", "csv", "svg")
MOST_LOAD: Final = 10.0
MOST_SEEDS: Final = 100
MOST_NAMED: Final = 3
REDRAW_SECONDS: Final = 0.2
BAR_CELLS: Final = 40


def replay(words: list[str], program: str, plugin: bool) -> int:
    parser = Parser(program, "options and one file with pods")
    parser.add_argument("trace", nargs="?", default="")
    parser.add_argument("--nodes", default="")
    parser.add_argument("--policy", default="")
    parser.add_argument("--arrivals", default="")
    parser.add_argument("--seed", nargs="+", default=["1"])
    parser.add_argument("--load", default="")
    parser.add_argument("--departures", action="store_true")
    parser.add_argument("-o", "--output", default=OUTPUTS[0])
    args = parser.parse(words)
    if not args.trace:
        raise UserError("no trace is named", f"{program} needs a file with pods", f"{program} --help")
    if args.output not in OUTPUTS:
        raise unknown("output format", args.output, OUTPUTS, "-o {}")
    if args.departures and (args.arrivals or args.load):
        other, why = "--arrivals" if args.arrivals else "--load", "with --departures pods come when the trace says"
        raise UserError(f"{other} and --departures exclude each other", why, "leave out one of them")
    policies, seeds = _policies(args.policy), _seeds(args.seed)
    screen = screen_of(args.color)

    from gpushare.sim import app
    from gpushare.sim.reading import checks, load

    plan = app.Plan(policies, seeds, _load(args.load or "1.3"), args.arrivals, args.departures)
    trace = load.trace(args.trace, args.nodes)
    kept_off = checks.kept_off(trace.pods, trace.nodes)
    if kept_off:
        some = [wording.printable(f"{name:.80}") for name in kept_off[:MOST_NAMED]]
        names = ", ".join(some) + (", ..." if len(kept_off) > MOST_NAMED else "")
        screen.note(f"{len(kept_off):,} pods fit no node of the models that they may use: {names}")
    bar = Bar(screen)
    try:
        runs = app.run(trace, plan, bar.show)
    finally:
        bar.wipe()

    last = max([run.points[-1].load for run in runs])
    if args.arrivals and last < 100 * plan.load - 1:
        screen.note(f"the pods of {args.arrivals} end at a load of {last} %")

    from gpushare.sim.showing import chart, programs, table

    written = {
        "table": lambda: table.written(trace, runs, seeds),
        "json": lambda: programs.json(trace, runs),
        "csv": lambda: programs.csv(runs),
        "svg": lambda: chart.drawn(trace, runs),
    }
    screen.say(written[args.output]())
    return 0


def _policies(text: str) -> list[str]:
    names = list(dict.fromkeys([name.strip() for name in text.split(",") if name.strip()]))
    if not names:
        raise UserError("no policy is named", f"policies: {', '.join(KNOWN)}", f"--policy {KNOWN[0]},{KNOWN[-1]}")
    for name in names:
        if name in POLICIES and name not in KNOWN:
            why = "it goes by what GPUs do, and nobody measured that here"
            raise UserError(f"{name} cannot be replayed", why, f"--policy {','.join(KNOWN)}")
        if name not in KNOWN:
            raise unknown("policy", name, KNOWN, "--policy {}")
    return names


def _seeds(words: list[str]) -> list[int]:
    texts = [text for word in words for text in word.split(",") if text]
    for text in texts:
        if not (text.isascii() and text.isdecimal() and len(text) <= 9):
            raise UserError(f'"{text:.40}" is not a seed', "seeds are whole numbers, 0 or more", "TRACE --seed 42 43")
    if not 1 <= len(texts) <= MOST_SEEDS:
        raise UserError(f"{len(texts)} seeds", f"1 to {MOST_SEEDS} can be replayed at once", "--seed 42 43")
    return list(dict.fromkeys(map(int, texts)))


def _load(text: str) -> float:
    plain = text.replace(".", "", 1)
    load = float(text) if plain.isascii() and plain.isdecimal() and len(plain) <= 9 else 0.0
    if not 0 < load <= MOST_LOAD:
        why = f"it is a part of all GPUs: more than 0, and {MOST_LOAD:.0f} at most"
        raise UserError(f'"{text:.40}" is not a load', why, "--load 1.3 for 130 %")
    return load


class Bar:
    """How far it is, on stderr if that is a terminal. It is wiped before the answer comes."""

    def __init__(self, screen: "Screen") -> None:
        self._screen, self._drawn, self._shown = screen, 0.0, screen.err.isatty()

    def show(self, came: int, pods: int) -> None:
        now = time.monotonic()
        if self._shown and now - self._drawn >= REDRAW_SECONDS:
            self._drawn = now
            part = min(came, pods) * BAR_CELLS // max(pods, 1)
            bar = "#" * part + "." * (BAR_CELLS - part)
            streams.remark(self._screen.err, f"\r{bar} {came:,} of {pods:,} pods")

    def wipe(self) -> None:
        if self._drawn:
            streams.remark(self._screen.err, "\r\x1b[2K")
