"""How many devices kubelet can report for one container.

Pure. From 1.36 on kubelet writes every device of a container into the pod's status. With one device for each MiB that
is megabytes, written again every minute. If it becomes too large the API server refuses it, and the pod can neither run
nor be deleted. So on such a node a container may have only so many units from the device plugin.
"""

import re
from typing import Final

from gpushare.core.facts import names
from gpushare.core.facts.model import Unit

REPORTS_UNITS: Final = (1, 36)  # kubelet, from then on
MOST_REPORTED: Final = 50_000  # units of a container; at 80,000 the API server refuses the status


def most_units(kubelet_version: str, unit: Unit) -> int:
    """Units that one container may have from a device plugin; 0: no limit."""
    numbers = re.match(r"v?(\d+)\.(\d+)", kubelet_version)
    reports = numbers is not None and (int(numbers[1]), int(numbers[2])) >= REPORTS_UNITS
    return MOST_REPORTED if reports and unit == names.MIB else 0
