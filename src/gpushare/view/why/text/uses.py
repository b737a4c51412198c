"""What a pod that runs uses, against what it asked: one line below where it runs.

Pure.
"""

from gpushare.core.explain.report import Explanation, UseView
from gpushare.view import wording

LINE = "  uses  {amounts}, sampled {ago} ago"
OVER = "  over  {over} MiB more than it asked ({containers})"
AT_RISK = ": others on that GPU can run out of memory"


def lines(explanation: Explanation, now: float) -> list[str]:
    """Nothing if it is not known, or too old."""
    uses = explanation.uses
    if not uses or explanation.sampled_at is None:
        return []
    several = len({use.gpu for use in uses}) > 1
    amounts = ", ".join(_amount(use, several) for use in uses)
    ago = wording.duration(now - wording.timestamp(explanation.sampled_at))
    over = [use for use in uses if use.over_mib]
    found = [LINE.format(amounts=amounts, ago=ago)]
    if over:
        containers = ", ".join(dict.fromkeys(use.container for use in over))
        shared = {holder.gpu for holder in explanation.beside} & {use.gpu for use in over}
        line = OVER.format(over=sum(use.over_mib for use in over), containers=containers)
        found.append(line + AT_RISK if shared else line)
    return found


def _amount(use: UseView, several: bool) -> str:
    """`3100 of 3500 MiB (main)`."""
    where = f"{use.container}, GPU {use.gpu}" if several else use.container
    return f"{use.used_mib} of {use.asked_mib} MiB ({where})" if use.asked_mib else f"{use.used_mib} MiB ({where})"
