"""`make soak ARGS="--minutes N --seed S"`: new lives for as long as it is let; the first broken promise ends it.

Prints how far it is once in a while. Exit code 1 with the seed and the shortest story when something is found; the
same seed then finds it again: `python -m tests.adversary --seed S --lives 1`.
"""

import argparse
import os
import sys
import time

from tests.adversary import life

SAY_SECONDS = 10.0


def main(words: list[str]) -> int:
    given = _parser().parse_args(words)
    seed: int = given.seed if given.seed is not None else int(time.time())
    first, started, said = seed, time.monotonic(), 0.0
    deeds = checks = bindings = 0
    while True:
        passed = time.monotonic() - started
        over = passed >= 60 * given.minutes if given.lives is None else seed - first >= given.lives
        if over or passed - said >= SAY_SECONDS:
            said = passed
            counted = f"{seed - first} lives  {deeds} deeds  {bindings} bindings  {checks} checks"
            print(f"{passed:6.0f} s  seed {seed}  {counted}", flush=True)
        if over:
            return 0
        found = life.live(seed)
        if isinstance(found, life.Found):
            print(found)
            return 1
        deeds, checks, bindings = deeds + found.deeds, checks + found.checks, bindings + found.bindings
        seed += 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make soak", description="Random lives against an accountant of their own.")
    parser.add_argument("--minutes", type=float, default=10.0, help="for how long; default 10")
    parser.add_argument("--seed", type=int, help="of the first life; default: the time of day")
    parser.add_argument("--lives", type=int, help="how many instead of for how long")
    return parser


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets shall be the same for the same seed
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.adversary", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    sys.exit(main(sys.argv[1:]))
