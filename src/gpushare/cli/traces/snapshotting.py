"""`gpushare snapshot`: its help page and its options. As in `commands`, what does the work is imported when it runs."""

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpushare.cli.commands import screen_of
from gpushare.cli.words import Parser, unknown
from gpushare.obs import errors
from gpushare.view import wording

if TYPE_CHECKING:
    from gpushare.sim.recording.recording import Recording

JSON, CSV = FORMATS = ("json", "csv")
MOST_NAMES: Final = 5  # in one sentence
LEFT_OUT: Final = "left out: {pods} that no node here could ever take, or whose request a trace has no words for"

PAGE: Final = """\
usage: {program} [-o json|csv] [--nodes FILE] [--hash-names]
Writes down what nodes with GPUs have and what pods ask, for gpushare replay: so
you can try on your desk how other policies would have placed these pods.
Reads nodes and pods, and changes nothing. Also without gpushare in the cluster:
then GPUs are those that NVIDIA's plugin sells.
  -o, --output FORMAT json (default): one file; csv: pods, and nodes in --nodes
  --nodes FILE        with -o csv: where the table of nodes goes
  --hash-names        no names of nodes, pods and namespaces, so that the file
                      can be given away
  --kubeconfig FILE, --context NAME, --color auto|always|never, --debug
Examples
  {program} > cluster.json
  gpushare replay cluster.json --policy binpack,fgd,vrc
  {program} -o csv --nodes nodes.csv > pods.csv
What is in the file, and what is not: docs/packing.md
Exit codes: 0 done, 2 bad input, 3 the cluster could not be asked"""


def snapshot(words: list[str], program: str, plugin: bool) -> int:
    parser = Parser(program)
    parser.add_argument("-o", "--output", default=JSON)
    parser.add_argument("--nodes", default="")
    parser.add_argument("--hash-names", action="store_true")
    args = parser.parse(words)
    if args.output not in FORMATS:
        raise unknown("output format", args.output, FORMATS, "-o {}")
    if (args.output == CSV) != bool(args.nodes):
        what = "-o csv needs --nodes" if args.output == CSV else "--nodes goes with -o csv only"
        why = "a trace in CSV is two tables, in JSON it is one file"
        raise errors.UserError(what, why, f"{program} -o csv --nodes nodes.csv > pods.csv")

    import time

    from gpushare.sim.recording import recording, tables
    from gpushare.sim.trace import written
    from gpushare.view.direct import Direct

    screen = screen_of(args.color)
    found = recording.read(Direct(args.kubeconfig, args.context, screen.waiting), time.time())
    _check(found)
    if args.hash_names:
        found = recording.hashed(found, secrets.token_bytes(32))
    if args.output == CSV:
        _write(Path(args.nodes), tables.of_nodes(found.nodes))
        screen.say(tables.of_pods(found.pods))
    else:
        screen.say(written(found.nodes, found.pods))
    gpus = sum(len(node.gpus) for node in found.nodes)
    counts = ((len(found.nodes), "node"), (gpus, "GPU"), (len(found.pods), "pod"))
    screen.note(f"{', '.join([wording.count(number, word) for number, word in counts])}.")
    if found.left_out:
        screen.note(_left_out(found, named=not args.hash_names))
    return 0


def _check(found: "Recording") -> None:
    if not found.nodes:
        why = "no node publishes GPU memory, and none sells nvidia.com/gpu"
        raise errors.UserError("this cluster has no GPUs", why, "gpushare inspect")
    if not found.pods:
        why = "no pod asks for GPUs, and none uses CPU of a node that has some"
        raise errors.UserError("this cluster has no pods to replay", why, "gpushare inspect")


def _write(path: Path, text: str) -> None:
    """All of it, or nothing."""
    draft = path.parent / f".{path.name}.{os.getpid()}"
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        why = (error.strerror or str(error)).lower()
        raise errors.UserError(f"{path} cannot be written", why, "--nodes FILE in another folder") from None


def _left_out(found: "Recording", *, named: bool) -> str:
    count = len(found.left_out)
    names = ", ".join(found.left_out[:MOST_NAMES]) + (" ..." if count > MOST_NAMES else "")
    return LEFT_OUT.format(pods=wording.count(count, "pod")) + (f": {names}" if named else ".")
