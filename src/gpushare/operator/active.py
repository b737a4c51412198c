"""Which policy counts. One does: the oldest, and of equally old ones the first by name."""

from collections.abc import Iterable
from typing import Final

from gpushare.operator.seeing.models import Policy

IGNORED: Final = 'ClusterPolicy "{active}" is active, and only one can be: the oldest. Delete that one to use this one'


def in_order(policies: Iterable[Policy]) -> list[Policy]:
    """The first one is active, also while it is being deleted: the next one waits until all of it is gone."""
    return sorted(policies, key=lambda policy: (policy.metadata.creation_timestamp or "", policy.name))
