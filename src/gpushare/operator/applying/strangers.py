"""Objects that have a name that the operator wants, and that somebody else made: by hand, by the manifests of deploy/,
or by NVIDIA's operator.

They are never taken over: what the operator owns it also deletes. Its watches show only what has its label, so it looks
before it makes an object. A RuntimeClass of somebody else does what ours would; any other object is in the way, until
it is deleted or handed over by our label.
"""

import time
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from gpushare.core.facts import names, objects
from gpushare.kube import client
from gpushare.operator.managed import APPLY
from gpushare.operator.seeing.keys import Key
from gpushare.operator.seeing.kinds import BY_NAME, RENEWED
from gpushare.operator.seeing.models import Live, Meta

AS_GOOD: Final = ("RuntimeClass",)
NOBODYS: Final = (RENEWED,)  # the program that holds it makes it, too
BELIEVED: Final = 10.0  # seconds: passes may follow each other closely
LOOK_SECONDS: Final = 30.0  # between two looks whether a stranger is gone: no watch tells
IN_THE_WAY: Final = (
    "{key} is there already, made by {maker}: delete it, or hand it over: kubectl label {kind} {where}{name} {label}"
)


class _Entry(objects.Struct):
    manager: str = ""
    operation: str = ""


class _Meta(Meta):
    managed_fields: list[_Entry] | None = None


class _Found(Live):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


class Stranger(NamedTuple):
    """`text`: what is in the way, and what to do."""

    live: Live
    text: str


class Strangers:
    """`met`: those of the last look, by name."""

    def __init__(self, api: client.Api, clock: Callable[[], float] = time.monotonic) -> None:
        self.met: dict[Key, Stranger] = {}
        self._looked: dict[Key, float] = {}
        self._api, self._clock = api, clock

    def begin(self, wanted: frozenset[Key]) -> None:
        """A pass wants these; strangers of others do not matter any more."""
        self.met = {key: one for key, one in self.met.items() if key in wanted}

    async def find(self, key: Key) -> Stranger | None:
        """Who has this name; None: nobody, or the operator itself."""
        if key.kind in NOBODYS:
            return None
        if key in self.met and self._clock() - self._looked[key] < BELIEVED:
            return self.met[key]
        self.met.pop(key, None)
        self._looked[key] = self._clock()
        query = {"fieldSelector": f"metadata.name={key.name}"}
        pages = self._api.list_pages(BY_NAME[key.kind].resource, _Found, namespace=key.namespace, query=query)
        for found in [one async for items, _ in pages for one in items if one.metadata.name == key.name]:
            if not _is_ours(found):
                self.met[key] = Stranger(found, _text(key, found))
        return self.met.get(key)

    def gone(self, key: Key) -> None:
        """It is ours by now."""
        self.met.pop(key, None)

    @property
    def as_good(self) -> dict[Key, Live]:
        """Those that do what ours would."""
        return {key: one.live for key, one in self.met.items() if key.kind in AS_GOOD}


def _is_ours(found: _Found) -> bool:
    """Also if somebody took our label from it."""
    label, value = names.MANAGED_BY
    entries = found.metadata.managed_fields or ()
    applied = any(one.manager == names.OPERATOR_MANAGER and one.operation == APPLY for one in entries)
    return applied or (found.metadata.labels or {}).get(label) == value


def _text(key: Key, found: _Found) -> str:
    maker = next((one.manager for one in found.metadata.managed_fields or () if one.manager), "somebody else")
    where = f"-n {key.namespace} " if key.namespace else ""
    label = "--overwrite " + "=".join(names.MANAGED_BY)
    return IN_THE_WAY.format(
        key=key, maker=maker, kind=key.kind.lower(), where=where, name=key.name, label=label
    )  # fmt: skip
