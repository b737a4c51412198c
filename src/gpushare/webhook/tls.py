"""The certificate that the webhook shows, exchanged while it serves: connections made from then on see the new one.

It comes from the Secret (`secret`), or from files that somebody else keeps current, such as cert-manager.
"""

import ssl
import tempfile
from pathlib import Path

from gpushare.obs import errors, log

logger = log.get(__name__)


class Shown:
    def __init__(self) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._loaded: tuple[bytes, bytes] | None = None

    def load(self, certificate: bytes, key: bytes) -> None:
        """Raises ssl.SSLError if they are no pair; the one before stays in use."""
        if self._loaded == (certificate, key):
            return
        with tempfile.NamedTemporaryFile() as file:  # Python's ssl reads files only; nobody else may read this one
            file.write(certificate + b"\n" + key)
            file.flush()
            # First where nobody is served: a context that could not load a pair has lost the one before.
            for context in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self.context):
                context.load_cert_chain(file.name, password="")  # else a locked key would be asked for on the terminal
        self._loaded = (certificate, key)
        logger.info("certificate loaded")


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
