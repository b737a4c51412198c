"""Every code a refusal can have, read from the source: a new one must come with its examples."""

import re
from pathlib import Path

from gpushare.core.explain import verdict
from gpushare.core.facts import request
from gpushare.core.ledger import ledger, node_state
from gpushare.core.placement import fit

NOT_ABOUT_PLACES = {"Decided"}  # said to a caller that asks about a pod which is placed already


def every() -> set[str]:
    source = "".join(Path(module.__file__ or "").read_text() for module in (fit, request, ledger, node_state, verdict))
    codes = set(re.findall(r'Refusal\(\s*"(\w+)"', source)) | set(re.findall(r'_say\(\s*(?:code or )?"(\w+)"', source))
    codes |= set(re.findall(r'"(No\w+)" if heals', source))
    return codes - NOT_ABOUT_PLACES
