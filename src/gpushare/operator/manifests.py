"""The manifests of deploy/, as data. The operator makes from them what a ClusterPolicy asks for: each exists once.

In a wheel they are beside the package; in a checkout they are where people apply them from.
"""

from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

import gpushare

Object = dict[str, Any]

PACKAGE: Final = Path(gpushare.__file__).parent
PACKAGED: Final = PACKAGE / "manifests"
CHECKOUT: Final = PACKAGE.parents[1] / "deploy"


def load(name: str) -> list[Object]:
    """The documents of a file, such as `node-ds.yaml` or `crds/gpunodes.yaml`. Each call makes new ones."""
    return msgspec.json.decode(_read(name), type=list[Object])


@cache
def _read(name: str) -> bytes:
    """YAML is slow to parse, so it is kept as JSON."""
    folder = PACKAGED if PACKAGED.is_dir() else CHECKOUT
    return msgspec.json.encode(list(yaml.safe_load_all((folder / name).read_text("utf-8"))))
