"""The `gpushare` command and its names as kubectl plugins: what there is, and the one command that was asked for.

Imports only the chosen component, so that each starts fast. Nobody sees a stack trace unless they ask for it.
"""

import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence

import gpushare
from gpushare.cli import commands, components, help, words
from gpushare.obs import errors

INTERRUPTED = 130
COMMANDS: dict[str, tuple[str, commands.Command]] = {
    "inspect": (help.INSPECT, commands.inspect),
    "why": (help.WHY, commands.why),
    "demo": (help.DEMO, commands.demo),
    "extender": (help.EXTENDER, components.extender),
    "node": (help.NODE, components.node),
    "device-plugin": (help.DEVICE_PLUGIN, components.device_plugin),
}
OF_PLUGIN = ("inspect", "why")


def main(argv: Sequence[str] | None = None) -> int:
    """`gpushare COMMAND`. Returns the exit code."""
    return _guarded(argv, lambda given: _run(given, "gpushare", tuple(COMMANDS), help.ALL, plugin=False))


def gpushare_plugin(argv: Sequence[str] | None = None) -> int:
    """`kubectl gpushare COMMAND`."""
    return _guarded(argv, lambda given: _run(given, "kubectl gpushare", OF_PLUGIN, help.PLUGIN, plugin=True))


def inspect_plugin(argv: Sequence[str] | None = None) -> int:
    """`kubectl inspect gpushare`."""
    return _guarded(argv, lambda given: _command(given, "inspect", "kubectl inspect gpushare", plugin=True))


def _guarded(argv: Sequence[str] | None, run: Callable[[list[str]], int]) -> int:
    given = list(sys.argv[1:] if argv is None else argv)
    _open_streams()
    try:
        return run(given)
    except errors.UserError as error:
        if "--debug" in given:
            traceback.print_exc()
        print(error.render(), file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # whoever read our answer has gone (`| head`)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return INTERRUPTED


def _open_streams() -> None:
    """Where a shell has closed a stream (`>&-`) Python has none: nothing comes from there, and nothing arrives."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, io.TextIOWrapper(io.FileIO(os.devnull, mode), encoding="utf-8"))


def _run(given: list[str], program: str, known: Sequence[str], page: str, *, plugin: bool) -> int:
    at = words.command_at(given)
    if at is None:
        return _no_command(given, program, page)
    name = given[at]
    if name not in known:
        raise words.unknown("command", name, known, program + " {}", otherwise=f"{program} --help")
    return _command(given[:at] + given[at + 1 :], name, f"{program} {name}", plugin=plugin)


def _command(given: list[str], name: str, program: str, *, plugin: bool) -> int:
    page, run = COMMANDS[name]
    if "--version" in given:
        print(gpushare.__version__)
        return 0
    if "-h" in given or "--help" in given:
        print(page.format(program=program))
        return 0
    return run(given, program, plugin)


def _no_command(given: Sequence[str], program: str, page: str) -> int:
    if "--version" in given:
        print(gpushare.__version__)
        return 0
    known = (*words.OF_EVERY_COMMAND, *words.SWITCHES)
    for word in given:
        if word.startswith("-") and words.name(word) not in known:
            raise words.unknown_option(word, program, [[name] for name in known])
    print(page)
    return 0 if "-h" in given or "--help" in given else errors.BAD_INPUT
