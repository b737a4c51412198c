"""From the names of files to a trace that can be replayed."""

from typing import TypeVar

from gpushare.obs.errors import UserError
from gpushare.sim.reading import checks, files, openb, plain, rows
from gpushare.sim.trace import Node, Pod, Trace

T = TypeVar("T")

NO_NODES = "--nodes FILE; a JSON file of gpushare snapshot has both"


def trace(pods_file: str, nodes_file: str) -> Trace:
    """`nodes_file`: empty if the other one has the nodes too."""
    text = files.text(pods_file)
    json = _is_json(text)
    if not json and not nodes_file:
        raise UserError("no nodes are named", f"{pods_file} has only pods", NO_NODES)
    both = plain.document(pods_file, text) if json else None
    if nodes_file:
        nodes = _nodes(nodes_file)
    else:
        assert both is not None
        nodes = _placed("nodes", both.nodes)
    checks.nodes(nodes_file or pods_file, nodes)
    found, timed = (_placed("pods", both.pods), True) if both is not None else _pods(pods_file, text)
    offered = tuple([node for _, node in nodes])
    checks.pods(pods_file, found, offered)
    return Trace(offered, tuple([pod for _, pod in found]), timed)


def _nodes(file: str) -> list[tuple[str, Node]]:
    text = files.text(file)
    if _is_json(text):
        return _placed("nodes", plain.document(file, text).nodes)
    return openb.nodes(file, text) if "sn" in rows.header(text) else plain.nodes(file, text)


def _pods(file: str, text: str) -> tuple[list[tuple[str, Pod]], bool]:
    """And whether it says when they come and how long they stay."""
    columns = set(rows.header(text))
    reader = openb if columns & {"num_gpu", "gpu_milli"} else plain
    return reader.pods(file, text), columns >= set(reader.TIME_COLUMNS)


def _placed(what: str, found: tuple[T, ...]) -> list[tuple[str, T]]:
    return [(f"{what}[{i}]", one) for i, one in enumerate(found)]


def _is_json(text: str) -> bool:
    return text.lstrip()[:1] in ("{", "[")
