"""What it means that an eviction failed.

The API server refuses one for several reasons, and some failures may come after the pod was evicted. Whoever evicts
pods (`pod_requests.evict`) asks here what to believe.
"""

from enum import Enum

from gpushare.kube.errors import ApiError, KubeError, Unreachable

BUDGET = "disruption budget"  # in the API server's message; a busy one answers the same status and names none


class Outcome(Enum):
    GONE = "gone"  # there is no such pod any more
    KEPT = "kept"  # a disruption budget keeps it for now
    UNCLEAR = "unclear"  # it may end all the same
    FAILED = "failed"  # nothing happened


def outcome(error: KubeError) -> Outcome:
    if not isinstance(error, ApiError):
        unsent = isinstance(error, Unreachable) and not error.sent
        return Outcome.FAILED if unsent else Outcome.UNCLEAR
    if error.status in (404, 409):
        return Outcome.GONE
    if error.status == 429 and BUDGET in error.message:
        return Outcome.KEPT
    return Outcome.UNCLEAR if error.status >= 500 else Outcome.FAILED
