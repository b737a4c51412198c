"""Keeps the API server's configurations of this webhook current: its rules, and the authorities to trust.

The configurations come with deploy/webhook.yaml, empty; here they are filled. One that is not there is not wanted, and
is never made. So the webhook needs no right to create any, and deleting the manifest leaves nothing behind that could
refuse pods.
"""

import base64
from collections.abc import Callable
from typing import Any

import msgspec

from gpushare.core.facts import objects
from gpushare.kube import models, requests, resources
from gpushare.kube.client import Api
from gpushare.obs import log
from gpushare.webhook import rules
from gpushare.webhook.rules import Choices, Object

logger = log.get(__name__)

Read = Callable[[str], requests.Request]
Patch = Callable[[str, object], requests.Request]


class Configuration(objects.Struct):
    metadata: models.ListMeta = msgspec.field(default_factory=models.ListMeta)
    webhooks: list[dict[str, Any]] | None = None


class Registration:
    def __init__(self, api: Api, choices: Choices) -> None:
        self._api, self._choices = api, choices

    async def refresh(self, bundle: bytes | None) -> None:
        """`bundle` is None: somebody else writes the authorities."""
        version = await self._api.version()
        read, patch = _mutating
        await self._keep(rules.PIN, read, patch, rules.mutating(version, self._choices), bundle)
        read, patch = _validating
        await self._keep(rules.GUARD, read, patch, rules.guarding(version, self._choices.namespace), bundle)
        await self._keep(rules.VALIDATE, read, patch, rules.validating(version, self._choices.namespace), bundle)

    async def _keep(self, name: str, read: Read, patch: Patch, webhooks: list[Object], bundle: bytes | None) -> None:
        there = await self._api.find(read(name), Configuration)
        if there is None:
            return
        trusted = None if bundle is None else base64.b64encode(bundle).decode()
        wanted = rules.with_bundles(webhooks, trusted, there.webhooks or [])
        if rules.covers(there.webhooks, wanted):
            return
        # With its version: what another wrote meanwhile is looked at first.
        body = {"metadata": {"resourceVersion": there.metadata.resource_version}, "webhooks": wanted}
        await self._api.send(patch(name, body))
        logger.info("registered", configuration=name, webhooks=len(wanted))


_mutating: tuple[Read, Patch] = (
    lambda name: requests.read(resources.MUTATING_WEBHOOKS, "", name),
    lambda name, body: requests.patch(resources.MUTATING_WEBHOOKS, "", name, body),
)
_validating: tuple[Read, Patch] = (
    lambda name: requests.read(resources.VALIDATING_WEBHOOKS, "", name),
    lambda name, body: requests.patch(resources.VALIDATING_WEBHOOKS, "", name, body),
)
