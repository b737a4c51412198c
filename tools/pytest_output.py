"""What pytest's output says: how many tests passed, which failed, what was measured.

`make e2e` runs pytest twice and tells people one thing, so every function here takes any number of outputs. Pure.
"""

import datetime
import re

CLOSING = re.compile(r"^=* ?(\d+ .*) in ([\d.]+)s.*$", re.MULTILINE)
COUNT = re.compile(r"(\d+) (failed|passed|skipped|xfailed|xpassed|warning|error)s?")
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", re.MULTILINE)
MEASURED = re.compile(r"^=+ measured =+\n((?: .*\n)*)", re.MULTILINE)
SEVERAL = frozenset({"warning", "error"})  # what pytest writes with an s where there are more than one


def closing(*outputs: str) -> str:
    """Their closing lines as one, in pytest's own form. What one run left out for another is not counted."""
    counts, seconds = dict[str, int](), 0.0
    for said, took in filter(None, map(_closing, outputs)):
        for number, what in COUNT.findall(said):
            counts[what] = counts.get(what, 0) + int(number)
        seconds += float(took)
    if not counts:
        return ""
    told = ", ".join(f"{number} {what}{'s' * (what in SEVERAL and number > 1)}" for what, number in counts.items())
    minutes = f" ({datetime.timedelta(seconds=int(seconds))})" if seconds >= 60 else ""
    return f"{told} in {seconds:.2f}s{minutes}"


def _closing(output: str) -> tuple[str, str] | None:
    found = CLOSING.findall(output)
    return found[-1] if found else None


def total(line: str) -> int:
    """How many tests a closing line is about."""
    return sum(int(number) for number, what in COUNT.findall(line) if what != "warning")


def failed(*outputs: str) -> list[str]:
    """The tests that failed, and the files that could not be read."""
    return [name for output in outputs for name in FAILED.findall(output.rpartition("short test summary info")[2])]


def measured(*outputs: str) -> str:
    """What the proofs on the real cluster have measured, a line for each."""
    return "".join(lines for output in outputs for lines in MEASURED.findall(output)[-1:])


def selection(test: str) -> str:
    """The shortest -k that still says something: two words or more, nine letters or more."""
    path, _, name = test.rpartition("::")
    if not path:
        return test  # a file that could not even be read
    words = name.split("[")[0].removeprefix("test_").split("_")
    for count in range(2, len(words)):
        if len("_".join(words[:count])) >= 9:
            return f"-k {'_'.join(words[:count])}"
    return f"-k {'_'.join(words) if words[1:] else name.split('[')[0]}"
