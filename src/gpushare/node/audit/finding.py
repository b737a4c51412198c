"""What the audit reports. The kinds of problems are in `core.explain.event_texts`."""

from typing import Final

from gpushare.core.explain.event_texts import TOO_SMALL
from gpushare.core.facts.model import Data, PodFacts

ONCE: Final = (TOO_SMALL,)  # lasts as long as the hardware: one event says it, not one every five minutes


class Finding(Data, frozen=True):
    """A problem of a pod, or of the node if `pod` is None."""

    code: str
    message: str
    pod: PodFacts | None = None
