"""The webhook's certificate from files that somebody else keeps current, such as cert-manager; else see `secret`."""

from pathlib import Path

from gpushare.obs import errors
from gpushare.obs.tls import Shown


class Files:
    """`--tls-cert`, `--tls-key`, and `--ca-file` if API servers shall be told whom to trust."""

    def __init__(self, shown: Shown, certificate: str, key: str, bundle: str | None) -> None:
        self._shown, self._bundle = shown, bundle
        self._files = certificate, key

    async def refresh(self) -> bytes | None:
        """Loads what the files say now. Returns the authorities to trust; None if somebody else writes them."""
        return self._load()

    def _load(self) -> bytes | None:
        try:
            self._shown.load(*(Path(file).read_bytes() for file in self._files))
            return Path(self._bundle).read_bytes() if self._bundle else None
        except (OSError, ValueError) as error:  # ssl's own errors are OSErrors
            given = ", ".join(file for file in (*self._files, self._bundle) if file)
            way = "check --tls-cert, --tls-key and --ca-file: PEM, without a password, and a matching pair"
            raise errors.UserError(f"the TLS files cannot be used: {given}", str(error), way) from error
