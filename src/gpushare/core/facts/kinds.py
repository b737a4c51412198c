"""The kinds of GPU requests, and the resource that each is asked by.

`BY_RESOURCE` is the table: request parsing, placement, charges, capacities and sentences use the kind of a share, never
the name of a resource. A new resource is one entry. A new kind is one entry, its parser and its tests.
"""

from gpushare.core.facts import names, units
from gpushare.core.facts.model import Kind, Refusal, Unit
from gpushare.core.facts.objects import Quantity

NOT_MEMORY = "{resource} counts {unit}, not bytes"
NOT_WHOLE = "{resource} is not a whole number"
NO_MPS = Refusal("NoMps", "node(s) that sell no MPS slots", forever=True)
NOT_NVIDIA = Refusal("NotNvidia", "node(s) that do not sell nvidia.com/gpu through gpushare", forever=True)

MOST_GPUS = 1024  # in one request; more than any node has, and small enough to be harmless


def _memory(resource: str, container: str, written: Quantity, unit: Unit | None) -> int | Refusal:
    amount, counted = units.parse(written), unit or names.MIB
    if amount is None:
        message = NOT_WHOLE.format(resource=resource)
        return Refusal("NotWhole", message, forever=True, detail=f"container {container} asks {units.quoted(written)}.")
    if amount.value and (amount.binary or amount.value > units.TIB_IN[counted]):
        message = NOT_MEMORY.format(resource=resource, unit=counted)
        detail = (
            f"container {container} asks {units.short(written)}, read as {units.short(amount.value)} {counted}. "
            f'Write "{units.short(units.in_unit(amount.value, counted))}".'
        )
        return Refusal("NotMemory", message, forever=True, detail=detail)
    return amount.value


def _memory_in_words(amount: str, gpus: int) -> str:
    return f"{amount} over {gpus} GPUs" if gpus > 1 else amount


def _gpus(resource: str, container: str, written: Quantity, unit: Unit | None) -> int | Refusal:
    amount = units.parse(written)
    if amount is None or amount.binary or amount.value > MOST_GPUS:
        message = NOT_WHOLE.format(resource=resource)
        detail = f"container {container} asks {units.quoted(written)}."
        return Refusal("CountNotWhole", message, forever=True, detail=detail)
    return amount.value


def _whole_gpus_in_words(amount: str, gpus: int) -> str:
    return "a whole GPU" if gpus == 1 else f"{gpus} whole GPUs"


def _mps_in_words(amount: str, gpus: int) -> str:
    share = f"an MPS share of {amount}" if amount else "an MPS share"
    return f"{share} on {gpus} GPUs" if gpus > 1 else share


MEMORY = Kind("memory", parse=_memory, in_words=_memory_in_words, sells=lambda facts, gpu: gpu.total)
WHOLE = Kind("whole GPUs", parse=_gpus, in_words=_whole_gpus_in_words, sells=lambda facts, gpu: 1, exclusive=True)
NVIDIA_WHOLE = Kind(
    "whole GPUs", parse=_gpus, in_words=_whole_gpus_in_words, sells=lambda facts, gpu: int(facts.nvidia_whole),
    exclusive=True, not_sold=NOT_NVIDIA, only_pinned=True,
)  # fmt: skip
MPS = Kind("MPS shares", parse=_gpus, in_words=_mps_in_words, sells=lambda facts, gpu: facts.slots, slots=1,
           not_sold=NO_MPS)  # fmt: skip

BY_RESOURCE = {names.GPU_MEM: MEMORY, names.GPU_COUNT: WHOLE, names.NVIDIA_GPU: NVIDIA_WHOLE, names.MPS_GPU: MPS}
KINDS = tuple(dict.fromkeys(BY_RESOURCE.values()))
BY_PLUGIN = {resource: kind for resource, kind in BY_RESOURCE.items() if kind.not_sold is None}  # on plugin nodes, too
ONLY_PINNED = frozenset(resource for resource, kind in BY_RESOURCE.items() if kind.only_pinned)
