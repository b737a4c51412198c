"""The certificate that a component shows, exchanged while it serves: connections made from then on see the new one."""

import os
import ssl

from gpushare.obs import log

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
        # Python's ssl reads files only. This one is in memory: a container may have no folder to write to.
        with os.fdopen(os.memfd_create("certificate"), "wb") as file:
            file.write(certificate + b"\n" + key)
            file.flush()
            # First where nobody is served: a context that could not load a pair has lost the one before.
            for context in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self.context):
                # Without a password a locked key would be asked for on the terminal.
                context.load_cert_chain(f"/proc/self/fd/{file.fileno()}", password="")
        self._loaded = (certificate, key)
        logger.info("certificate loaded")
