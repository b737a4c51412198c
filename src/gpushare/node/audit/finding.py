"""What the audit reports. The kinds of problems are in `core.explain.audit_codes`."""

from typing import Final

from gpushare.core.explain.audit_codes import TOO_SMALL
from gpushare.core.facts.model import Data, PodFacts

ONCE: Final = (TOO_SMALL,)  # lasts as long as the hardware: one event says it, not one every five minutes


class Finding(Data, frozen=True):
    """A problem of a pod, or of the node if `pod` is None."""

    code: str
    message: str
    pod: PodFacts | None = None
