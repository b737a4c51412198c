"""The `gpushare` command, also under its names as kubectl plugins: it finds the command on the line and runs it.

Only the chosen component is imported, so that each starts fast. Errors are three lines; `--debug` adds a stack trace.
"""

import sys
from collections.abc import Callable, Sequence

import gpushare
from gpushare.cli import (
    commands,
    components,
    dashboard,
    finder,
    help,
    installing,
    mps,
    observing,
    operating,
    validating,
    words,
)  # fmt: skip
from gpushare.cli.traces import replaying, snapshotting
from gpushare.ctl import streams
from gpushare.obs import errors

# What a shell reports for kubectl and coreutils in `... | head -1`: SIGPIPE (13) ended them, without a word. We keep
# ignoring that signal, as Python does, because it would also end us when a connection to the cluster breaks.
READER_GONE = 128 + 13
COMMANDS: dict[str, tuple[str, commands.Command]] = {
    "inspect": (help.INSPECT, commands.inspect),
    "why": (help.WHY, commands.why),
    "top": (help.TOP, commands.top),
    "dashboard": (dashboard.PAGE, dashboard.dashboard),
    "validate": (validating.PAGE, validating.validate),
    "snapshot": (snapshotting.PAGE, snapshotting.snapshot),
    "replay": (replaying.PAGE, replaying.replay),
    "demo": (help.DEMO, commands.demo),
    "extender": (help.EXTENDER, components.extender),
    "node": (help.NODE, components.node),
    "device-plugin": (help.DEVICE_PLUGIN, components.device_plugin),
    "collector": (help.COLLECTOR, components.collector),
    "mps": (help.MPS, mps.mps),
    "webhook": (help.WEBHOOK, components.webhook),
    "finder": (finder.PAGE, finder.finder),
    "operator": (operating.OPERATOR, operating.operator),
    "install-scheduler": (installing.PAGE, installing.install_scheduler),
}
OF_PLUGIN = ("inspect", "why", "top")
POLICIES = "--help-policies"
OBSERVES = ("node", "device-plugin", "collector")  # what GPUs do


def main(argv: Sequence[str] | None = None) -> int:
    """`gpushare COMMAND`. Returns the exit code."""
    return _guarded(argv, lambda args: _run(args, "gpushare", tuple(COMMANDS), help.ALL, plugin=False))


def gpushare_plugin(argv: Sequence[str] | None = None) -> int:
    """`kubectl gpushare COMMAND`."""
    return _guarded(argv, lambda args: _run(args, "kubectl gpushare", OF_PLUGIN, help.PLUGIN, plugin=True))


def inspect_plugin(argv: Sequence[str] | None = None) -> int:
    """`kubectl inspect gpushare`."""
    return _guarded(argv, lambda args: _command(args, "inspect", "kubectl inspect gpushare", plugin=True))


def _guarded(argv: Sequence[str] | None, run: Callable[[list[str]], int]) -> int:
    args = list(sys.argv[1:] if argv is None else argv)
    streams.reopen()
    try:
        return run(args)
    except errors.UserError as error:
        streams.remark(sys.stderr, f"{_trace(args)}{error.render()}\n")
        return error.code
    except streams.ReaderGone:
        return READER_GONE
    except KeyboardInterrupt:
        return errors.INTERRUPTED
    finally:
        streams.finish()


def _trace(args: Sequence[str]) -> str:
    if "--debug" not in args:
        return ""
    import traceback  # costs time to load

    return traceback.format_exc()


def _run(args: list[str], program: str, known: Sequence[str], page: str, *, plugin: bool) -> int:
    at = words.command_at(args)
    if at is None:
        return _no_command(args, program, page)
    name = args[at]
    if name not in known:
        raise words.unknown("command", name, known, program + " {}", otherwise=f"{program} --help")
    return _command(args[:at] + args[at + 1 :], name, f"{program} {name}", plugin=plugin)


def _command(args: list[str], name: str, program: str, *, plugin: bool) -> int:
    page, run = COMMANDS[name]
    if name == "node" and components.sells_gpus(args):
        page = help.NODE_GPUS
    if name == "validate" and validating.on_node(args):
        page = validating.ON_NODE
    if "--version" in args:
        streams.write(sys.stdout, f"{gpushare.__version__}\n")
        return 0
    if name in OBSERVES and observing.SWITCH in args:
        page, args = help.NODE_METRICS, ["--help"]
    if name == "extender" and POLICIES in args:
        page, args = help.EXTENDER_POLICIES, ["--help"]
    if "-h" in args or "--help" in args:
        streams.write(sys.stdout, page.format(program=program) + "\n")
        return 0
    return run(args, program, plugin)


def _no_command(args: Sequence[str], program: str, page: str) -> int:
    if "--version" in args:
        streams.write(sys.stdout, f"{gpushare.__version__}\n")
        return 0
    known = (*words.OF_EVERY_COMMAND, *words.SWITCHES)
    for word in args:
        if word.startswith("-") and words.name(word) not in known:
            raise words.unknown_option(word, program, [[name] for name in known])
    streams.write(sys.stdout, f"{page}\n")
    return 0 if "-h" in args or "--help" in args else errors.BAD_INPUT
