"""What this command does not understand, and says so: always before anything is changed."""

from typing import Final

from gpushare.obs.errors import UserError

BY_HAND: Final = "change it by hand: docs/install-manifests.md, One control plane"


def refused(what: str, why: str, way: str = BY_HAND) -> UserError:
    return UserError(what, why, way)
