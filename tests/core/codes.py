"""Every code a refusal can have, read from the source: a new one must come with its examples."""

import re
from pathlib import Path

from gpushare import core

NOT_ABOUT_PLACES = {"Decided"}  # said to a caller that asks about a pod which is placed already


def every() -> set[str]:
    source = "".join(path.read_text() for path in Path(core.__file__).parent.rglob("*.py"))
    codes = set(re.findall(r'Refusal\(\s*"(\w+)"', source)) | set(re.findall(r'_say\(\s*(?:code or )?"(\w+)"', source))
    codes |= set(re.findall(r'"(No\w+)" if heals', source))
    return codes - NOT_ABOUT_PLACES
