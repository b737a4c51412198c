"""How many devices kubelet can report for one container.

From 1.36 on kubelet writes every device a container has into its pod's status. With one device for each MiB that is
megabytes, rewritten every minute, and beyond some size the API server refuses it: the pod can neither run nor be
deleted. So on such a node a container may have only so many units from the device plugin. Pure.
"""

import re
from typing import Final

from gpushare.core.facts import names
from gpushare.core.facts.model import Unit

REPORTS_UNITS: Final = (1, 36)  # kubelet, from then on
MOST_REPORTED: Final = 50_000  # units; at 80,000 the status is refused


def most_units(kubelet_version: str, unit: Unit) -> int:
    """Units that one container may have from a device plugin; 0: no limit."""
    numbers = re.match(r"v?(\d+)\.(\d+)", kubelet_version)
    reports = numbers is not None and (int(numbers[1]), int(numbers[2])) >= REPORTS_UNITS
    return MOST_REPORTED if reports and unit == names.MIB else 0
