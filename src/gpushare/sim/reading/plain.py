"""Our own files, JSON or CSV: `sim.trace` says what they look like. Pure."""

import re

import msgspec

from gpushare.obs.errors import UserError
from gpushare.sim.reading.rows import Row, rows
from gpushare.sim.trace import VERSION, Document, Gpu, Node, Pod

NODE_COLUMNS = ("name", "cpu_milli", "memory_mib", "gpu_memory_mib", "model")
POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "gpus", "gpu_memory_mib")
MODELS, TIME_COLUMNS = "models", ("arrival", "duration")  # may be missing
_PLACE = re.compile(r"(.*) - at `\$\.?(.*)`")


def document(file: str, text: str) -> Document:
    try:
        found = msgspec.json.decode(text, type=Document)
    except (msgspec.ValidationError, msgspec.DecodeError, RecursionError) as error:
        match = _PLACE.fullmatch(str(error))
        why = f"{match[2] or 'the document'}: {match[1]}" if match else str(error)
        way = "see the shape that gpushare snapshot writes"
        raise UserError(f"{file} is not a trace in JSON", why, way) from None
    if found.version != VERSION:
        why = f"its version is {str(found.version)[:20]}; this gpushare knows {VERSION}"
        raise UserError(f"{file} cannot be replayed", why, "use the gpushare that wrote it, or write it again")
    return found


def nodes(file: str, text: str) -> list[tuple[str, Node]]:
    """With the place of each in the file."""
    return [(f"row {row.number}", _node(row)) for row in rows(file, text, NODE_COLUMNS)]


def pods(file: str, text: str) -> list[tuple[str, Pod]]:
    return [(f"row {row.number}", _pod(row)) for row in rows(file, text, POD_COLUMNS)]


def _node(row: Row) -> Node:
    sizes, models = row.listed("gpu_memory_mib"), [part.strip() for part in row.cells["model"].split("|")]
    if not all(size.isascii() and size.isdecimal() and len(size) < 10 for size in sizes):
        why = f'gpu_memory_mib is "{row.cells["gpu_memory_mib"]:.40}"'
        raise row.fault(why, "write the MiB of each GPU with bars between: 16276|16276")
    if len(models) not in (1, len(sizes)):
        why = f"it has {len(sizes)} GPUs and {len(models)} models"
        raise row.fault(why, "write one model for all GPUs, or one for each")
    if len(models) == 1:
        models *= len(sizes)
    gpus = tuple([Gpu(int(size), model) for size, model in zip(sizes, models, strict=True)])
    return Node(row.name("name"), row.needed("cpu_milli"), row.needed("memory_mib"), gpus)


def _pod(row: Row) -> Pod:
    return Pod(
        row.name("name"),
        row.needed("cpu_milli"),
        row.needed("memory_mib"),
        row.needed("gpus"),
        row.whole("gpu_memory_mib"),
        row.listed(MODELS),
        row.seconds("arrival") or 0.0,
        row.seconds("duration"),
    )
