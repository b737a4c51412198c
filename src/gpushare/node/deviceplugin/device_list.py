"""The message that lists all devices of a node: each unit of GPU memory, or each GPU.

Pure. kubelet takes at most 4 MiB; a node with more units than fit is refused at the start, with the numbers. The
message is made as bytes from one pattern, because 200,000 objects would be slow.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from gpushare.core.facts import names
from gpushare.core.facts.model import Gpu, Unit
from gpushare.kubelet import unit_ids
from gpushare.kubelet.pb.methods import HEALTHY, LIST_LIMIT, UNHEALTHY
from gpushare.obs.errors import UserError

TOO_FINE: Final = "{node}: --memory-unit={unit} is too fine for this node"
TOO_MANY: Final = "{gpus} are {units:,} units; a device plugin can list about {most:,}"
COARSER: Final = "--pin=direct (Kubernetes 1.36 or later), or --memory-unit=GiB ({units:,} units)"
ALREADY_COARSE: Final = "--pin=direct (Kubernetes 1.36 or later)"
_KEY: Final = b"KEY"  # upper case: no id has such letters


def _device(name: bytes, health: str) -> bytes:
    """One entry of the list, as protobuf writes it."""
    word = health.encode()
    inside = b"\x0a" + bytes([len(name)]) + name + (b"\x12" + bytes([len(word)]) + word if word else b"")
    return b"\x0a" + bytes([len(inside)]) + inside


UNIT_BYTES: Final = len(_device(b"0" * unit_ids.LENGTH, HEALTHY))
MOST_UNITS: Final = LIST_LIMIT // UNIT_BYTES


def check(node: str, unit: Unit, gpus: Sequence[Gpu]) -> None:
    """Refuses a node whose list kubelet would not take."""
    count = sum(gpu.total for gpu in gpus)
    if count > MOST_UNITS:
        coarse = sum(gpu.total // 1024 for gpu in gpus)
        raise UserError(
            TOO_FINE.format(node=node, unit=unit),
            TOO_MANY.format(gpus=_sizes(gpus, unit), units=count, most=round(MOST_UNITS, -4)),
            COARSER.format(units=coarse) if unit == names.MIB else ALREADY_COARSE,
        )


def _sizes(gpus: Sequence[Gpu], unit: Unit) -> str:
    sizes = [gpu.total for gpu in gpus]
    if len(set(sizes)) == 1:
        return f"{len(gpus)} GPU{'s' if len(gpus) > 1 else ''} of {sizes[0]} {unit}"
    return f"GPUs of {' + '.join(map(str, sizes))} {unit}"


def memory(gpus: Sequence[Gpu], keys: Mapping[str, str], healthy: Mapping[str, int], numbered: str) -> bytes:
    """All units of all GPUs; those that are not in `healthy` (by GPU, a bit for each unit) are listed unhealthy."""
    message = _memory(gpus, keys, healthy, numbered, UNHEALTHY)
    if len(message) > LIST_LIMIT:
        # The longer word does not fit. kubelet takes everything but "Healthy" for unhealthy, also an empty word.
        message = _memory(gpus, keys, healthy, numbered, "")
    return message


def whole(gpus: Sequence[Gpu], healthy: Mapping[str, int]) -> bytes:
    """All GPUs, named by their uuids."""
    return b"".join(_device(gpu.uuid.encode(), HEALTHY if healthy.get(gpu.uuid) else UNHEALTHY) for gpu in gpus)


def _memory(
    gpus: Sequence[Gpu], keys: Mapping[str, str], healthy: Mapping[str, int], numbered: str, unhealthy: str
) -> bytes:
    largest = max((gpu.total for gpu in gpus), default=0)
    pattern = _pattern(numbered[: largest * unit_ids.NUMBER], HEALTHY)
    parts = []
    for gpu in gpus:
        part = pattern[: gpu.total * UNIT_BYTES]
        if healthy[gpu.uuid].bit_count() < gpu.total:
            withdrawn = _pattern(numbered[: gpu.total * unit_ids.NUMBER], unhealthy)
            part = _mixed(part, withdrawn, healthy[gpu.uuid], gpu.total)
        parts.append(part.replace(_KEY, keys[gpu.uuid].encode()))
    return b"".join(parts)


def _pattern(numbered: str, health: str) -> bytes:
    """The entries of one GPU's units, with a placeholder for its key."""
    entry = _device(_KEY + b"NNNN", health)
    before, after = entry.split(b"NNNN")
    numbers = [numbered[at : at + unit_ids.NUMBER] for at in range(0, len(numbered), unit_ids.NUMBER)]
    return before + (after + before).join([number.encode() for number in numbers]) + after if numbers else b""


def _mixed(healthy: bytes, unhealthy: bytes, units: int, total: int) -> bytes:
    """The entries of one GPU: `units` healthy, the others not."""
    size, other_size = UNIT_BYTES, len(unhealthy) // total
    flags = unit_ids.flags(units).ljust(total, b"\0")
    return b"".join(
        healthy[at * size : (at + 1) * size] if flags[at] else unhealthy[at * other_size : (at + 1) * other_size]
        for at in range(total)
    )
