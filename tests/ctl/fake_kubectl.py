"""A kubectl for processes under test: it answers reads from files, and sends back what it is given to create."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

SCRIPT = """\
#!/bin/sh
[ "$1" = create ] && exec cat
[ "$1" = config ] && exit 0
asked="${{3##*/}}"
file="{folder}/${{asked%%\\?*}}"
[ -e "$file" ] || {{ echo "Error from server (NotFound): there is no such thing" >&2; exit 1; }}
exec cat "$file"
"""


def install(folder: Path, answers: Mapping[str, object]) -> dict[str, str]:
    """The environment in which it is found. `answers`: by the last word of the path that is read."""
    for name, answer in answers.items():
        (folder / name).write_text(json.dumps(answer))
    kubectl = folder / "kubectl"
    kubectl.write_text(SCRIPT.format(folder=folder))
    kubectl.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
