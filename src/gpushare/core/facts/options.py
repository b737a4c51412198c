"""What users may write on a pod beside its amounts: the unit, the policy, over how many GPUs to split, and the memory
and the threads that come with an MPS slot.

Annotations, and for the split also a label. They count until the pod is bound.
"""

from typing import NamedTuple

from gpushare.core.facts import kinds, names, objects, policies, units
from gpushare.core.facts.model import Refusal, Unit

UNKNOWN_POLICY = f"{names.POLICY} is not {{policies}}"
UNKNOWN_UNIT = f"{names.MEMORY_UNIT} is not MiB or GiB"
NOT_BYTES = "{key} is not a number of bytes up to 1Ti"
NOT_PERCENT = f"{names.MPS_THREADS} is not a whole number from 1 to 100"

MOST_BYTES = 1 << 40  # no GPU is larger than 1 TiB


_KEYS = frozenset([names.MEMORY_UNIT, names.POLICY, names.GPU_COUNT, names.MPS_THREADS, *names.SLOT_MEMORY])


class Options(NamedTuple):
    unit: Unit | None = None
    policy: str | None = None
    split: int = 1  # GPUs that each container's memory is split over
    slot_bytes: int | Refusal = 0  # memory that comes with an MPS slot. What is wrong counts only if the pod asks one


def read(metadata: objects.Metadata, default_unit: Unit | None) -> Options | Refusal:
    """The options of a pod, or what is wrong with them."""
    annotations, labels = metadata.annotations or {}, metadata.labels or {}
    if _KEYS.isdisjoint(annotations) and names.GPU_COUNT not in labels:
        return Options(default_unit)  # nearly all pods
    unit = _unit(annotations, default_unit)
    if isinstance(unit, Refusal):
        return unit
    policy = annotations.get(names.POLICY)
    if policy is not None and policy not in policies.POLICIES:
        message = UNKNOWN_POLICY.format(policies=" or ".join(policies.POLICIES))
        return Refusal("UnknownPolicy", message, forever=True, detail=f"it says {units.quoted(policy)}.")
    split = _split(annotations, labels)
    return split if isinstance(split, Refusal) else Options(unit, policy, split, _mps(annotations))


def _unit(annotations: dict[str, str], default_unit: Unit | None) -> Unit | Refusal | None:
    written = annotations.get(names.MEMORY_UNIT)
    if written is None:
        return default_unit
    if written == "MiB":
        return "MiB"
    if written == "GiB":
        return "GiB"
    return Refusal("UnknownUnit", UNKNOWN_UNIT, forever=True, detail=f"it says {units.quoted(written)}.")


def _split(annotations: dict[str, str], labels: dict[str, str]) -> int | Refusal:
    written = annotations.get(names.GPU_COUNT, labels.get(names.GPU_COUNT))
    if written is None:
        return 1
    if written.isascii() and written.isdigit() and len(written) < 10 and 1 <= int(written) <= kinds.MOST_GPUS:
        return int(written)
    message = kinds.NOT_WHOLE.format(resource=names.GPU_COUNT)
    detail = f"the pod's annotation says {units.quoted(written)}."
    return Refusal("CountNotWhole", message, forever=True, detail=detail)


def _mps(annotations: dict[str, str]) -> int | Refusal:
    """The larger of request and limit: what a client may use has to be there. 0: neither says anything. The percentage
    of threads is only checked: containers read it from their env."""
    most = 0
    for key in names.SLOT_MEMORY:
        written = annotations.get(key)
        amount = units.parse(written) if written is not None else None
        if written is not None and (amount is None or amount.value > MOST_BYTES):
            detail = f"it says {units.quoted(written)}."
            return Refusal("NotBytes", NOT_BYTES.format(key=key), forever=True, detail=detail)
        most = max(most, amount.value if amount is not None else 0)
    threads = annotations.get(names.MPS_THREADS, "100")
    if not (threads.isascii() and threads.isdigit() and len(threads) <= 3 and 1 <= int(threads) <= 100):
        return Refusal("NotPercent", NOT_PERCENT, forever=True, detail=f"it says {units.quoted(threads)}.")
    return most
