"""What `gpushare inspect` prints, for every world in every form, compared with files that a person has looked at.

    GPUSHARE_GOLDEN=write .venv/bin/python -m pytest tests/ctl/inspect/test_golden.py

writes them anew; look at the difference before it goes anywhere. In the files each line of stdout ends with `$`, so
that spaces at its end can be seen, and the escape character is `^[`.
"""

import io
import json
import os
from pathlib import Path

import pytest
import yaml

from gpushare.ctl.inspect import command
from gpushare.ctl.inspect.command import Options
from gpushare.ctl.inspect.watch import Clock
from gpushare.ctl.screen import Screen
from tests.ctl import worlds
from tests.ctl.worlds import NOW, WORLDS

GOLDEN = Path(__file__).parent / "golden"
PIPE, TERMINAL, NARROW, PLAIN, ASCII = "piped", "terminal", "40 columns", "NO_COLOR", "terminal without UTF-8"

FORMS = [
    ("", PIPE, Options()),
    ("", TERMINAL, Options()),
    ("-d", PIPE, Options(details=True)),
    ("-d", TERMINAL, Options(details=True)),
    ("-o wide", PIPE, Options(output="wide")),
    ("-d -o wide", PIPE, Options(details=True, output="wide")),
    ("-o yaml", PIPE, Options(output="yaml")),
]
MORE = {
    "sold": [
        ("gpu-e", PIPE, Options(nodes=("gpu-e",))),
        ("gpu-e", TERMINAL, Options(nodes=("gpu-e",))),
        ("-d -o wide", TERMINAL, Options(details=True, output="wide")),
    ],
    "measured": [("-o wide", TERMINAL, Options(output="wide")), ("-o json", PIPE, Options(output="json"))],
    "unhealthy": [("-o json", PIPE, Options(output="json"))],
    "documented": [
        ("", NARROW, Options()),
        ("-d gpu-d", NARROW, Options(details=True, nodes=("gpu-d",))),
        ("", PLAIN, Options()),
        ("", ASCII, Options()),
        ("-o wide", TERMINAL, Options(output="wide")),
        ("gpu-d gpu-c", PIPE, Options(nodes=("gpu-d", "gpu-c"))),
    ],
}


class Noon(Clock):
    """A clock that stands still."""

    def now(self) -> float:
        return NOW.timestamp()


def screen_of(kind: str) -> tuple[Screen, io.StringIO, io.StringIO]:
    out, err = io.StringIO(), io.StringIO()
    if kind == PIPE:
        return Screen(out, err), out, err
    width = 40 if kind == NARROW else 120
    made = Screen(out, err, width=width, height=40, color=kind != PLAIN, utf8=kind != ASCII, moves=True)
    return made, out, err


def shown(world: str, words: str, kind: str, options: Options) -> str:
    screen, out, err = screen_of(kind)
    code = command.run(options, worlds.cluster(world), screen, clock=Noon())
    title = f"{kind}: gpushare inspect {words}".rstrip()
    printed = out.getvalue().replace("\x1b", "^[").replace("\n", "$\n")
    noted = "".join(f"stderr: {line}\n" for line in err.getvalue().splitlines())
    return f"=== {title} ===\n{printed}{noted}exit code {code}\n"


@pytest.mark.parametrize("world", WORLDS)
def test_inspect_prints_what_was_looked_at(world: str) -> None:
    text = "\n".join(shown(world, *form) for form in FORMS + MORE.get(world, []))
    file = GOLDEN / f"{world}.txt"
    if os.environ.get("GPUSHARE_GOLDEN") == "write":
        file.write_text(text, "utf-8")
    assert text == file.read_text("utf-8")


@pytest.mark.parametrize("world", WORLDS)
def test_json_and_yaml_say_the_same(world: str) -> None:
    said = []
    for output, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        screen, out, _ = screen_of(PIPE)
        command.run(Options(output=output), worlds.cluster(world), screen, clock=Noon())
        said.append(read(out.getvalue()))
    assert said[0] == said[1]
    assert set(said[0]) == {"nodes", "sold", "waiting"}


def test_there_is_no_golden_file_without_a_world() -> None:
    assert {file.stem for file in GOLDEN.iterdir()} == set(WORLDS)


def test_the_guide_shows_what_is_printed() -> None:
    """Its blocks about what GPUs use are lines of the world `measured`."""
    guide = (Path(__file__).parents[3] / "docs" / "kubectl-plugin.md").read_text("utf-8")
    section = guide.partition("### What GPUs and pods really use")[2].partition("\n### ")[0]
    printed = {line.rstrip("$ ") for line in (GOLDEN / "measured.txt").read_text("utf-8").splitlines()}
    lines = [line for block in section.split("```")[1::2] for line in block.strip().splitlines()]
    assert lines
    assert [line for line in lines if line not in printed] == []
