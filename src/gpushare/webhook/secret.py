"""The Secret in which all replicas keep one authority and one certificate.

Each replica reads it again and again, works out what should be in it (`certificates`), and writes that if it differs.
The API server accepts a write only if nobody has written since the read: so one replica makes, and the others read. The
time is the API server's own: it is the one that judges certificates, and clocks of nodes may be wrong.
"""

import base64
import binascii
import datetime
from collections.abc import Callable, Mapping

import msgspec

from gpushare.core.facts import objects
from gpushare.kube import models, requests, resources
from gpushare.kube.client import Api
from gpushare.kube.errors import ApiError
from gpushare.obs import log
from gpushare.obs.tls import Shown
from gpushare.webhook import certificates, rules
from gpushare.webhook.certificates import Held

NAME = rules.SERVICE
TRIES = 5  # writes that others were faster with
CONFLICT = 409
GONE = "Secret {namespace}/{name} is not there"
WAY = "kubectl apply -f deploy/webhook.yaml; with the operator nothing: it makes it again"

logger = log.get(__name__)
Clock = Callable[[], datetime.datetime]


class Stored(objects.Struct):
    metadata: models.ListMeta = msgspec.field(default_factory=models.ListMeta)
    data: dict[str, str] | None = None


class Secret:
    def __init__(self, api: Api, shown: Shown, clock: Clock, namespace: str) -> None:
        self.held: Held | None = None
        self._namespace, self._host = namespace, rules.host(namespace)
        self._api, self._shown, self._clock = api, shown, clock

    async def refresh(self) -> bytes | None:
        """Loads what is agreed on. Returns the authorities that API servers shall trust."""
        for _ in range(TRIES):
            stored = await self._api.find(requests.read(resources.SECRETS, self._namespace, NAME), Stored)
            if stored is None:
                return self._without_secret()
            found = certificates.read(_decoded(stored.data or {}), self._host)
            # What is in memory is what API servers trust: it repairs a Secret that somebody has emptied.
            wanted = certificates.current(found or self.held, self._clock(), self._host)
            if wanted == found or await self._write(wanted, stored.metadata.resource_version):
                self.held = wanted
                self._shown.load(wanted.certificate, wanted.key)
                return wanted.bundle
        raise ApiError(CONFLICT, "Conflict", f"Secret {NAME} changes all the time")

    def _without_secret(self) -> bytes:
        if self.held is None:
            raise ApiError(404, "NotFound", f"{GONE.format(namespace=self._namespace, name=NAME)}: {WAY}")
        logger.warn("the Secret is gone, serving on with what is known", secret=NAME, way=WAY)
        return self.held.bundle

    async def _write(self, wanted: Held, version: str) -> bool:
        """False: somebody else was faster."""
        data = {name: base64.b64encode(value).decode() for name, value in wanted.as_data().items()}
        body = {"metadata": {"resourceVersion": version}, "data": data}
        try:
            await self._api.send(requests.patch(resources.SECRETS, self._namespace, NAME, body))
        except ApiError as error:
            if error.status == CONFLICT:
                return False
            raise
        logger.info("certificate written", secret=NAME, expires=certificates.expires(wanted).isoformat())
        return True


def _decoded(data: Mapping[str, str]) -> dict[str, bytes]:
    try:
        return {name: base64.b64decode(value) for name, value in data.items()}
    except (binascii.Error, ValueError):
        return {}
