"""LIST: which objects, at which revision, in pages. Answers are joined from the bytes in the store. Pure.

All pages of one list come from one snapshot, so a list is consistent however long a client takes to read it. A snapshot
that is no longer kept is "410 Expired", as in a real cluster.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from gpushare.devcluster.apiserver import selectors, status
from gpushare.devcluster.apiserver.kinds.table import Kind
from gpushare.devcluster.apiserver.status import Object
from gpushare.devcluster.apiserver.store import Entry, Snapshot, Store

TOKEN_VERSION: Final = "meta.k8s.io/v1"
NO_VERSION_WITH_CONTINUE: Final = "specifying resource version is not allowed when using continue"


class Token(msgspec.Struct):
    """A `continue` parameter: go on after this key, in the list of this revision."""

    v: str
    rv: int
    start: str


@dataclass(frozen=True)
class Query:
    """The parameters of a list or watch, read and checked."""

    match: selectors.Match
    selective: bool
    limit: int
    after: str
    revision: int | None  # None: the most recent
    exact: bool


def read(kind: Kind, query: Mapping[str, str]) -> Query:
    labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
    revision = _revision(query.get("resourceVersion", ""))
    after, exact = "", query.get("resourceVersionMatch") == "Exact"
    if token := query.get("continue", ""):
        if revision:
            raise status.bad_request(NO_VERSION_WITH_CONTINUE)
        after, revision, exact = *_decode(token), True
    return Query(
        match=selectors.compile(labels, fields, tuple(kind.fields)),
        selective=bool(labels or fields),
        limit=number(query, "limit"),
        after=after,
        revision=revision,
        exact=exact,
    )


def number(query: Mapping[str, str], name: str) -> int:
    """A whole number in the query string; 0 if it is missing."""
    text = query.get(name, "") or "0"
    if not text.isdecimal():
        raise status.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text)


def select(store: Store, kind: Kind, namespace: str, query: Query) -> tuple[Snapshot, list[Entry], int]:
    """The snapshot, its entries on this page, and how many positions are left after them."""
    snapshot = _snapshot(store, kind, query)
    span = snapshot.span(namespace, query.after)
    entries, match, everything = snapshot.entries, query.match, not query.selective
    if everything and not (query.limit and query.limit < len(span)):
        return snapshot, entries[span.start : span.stop], 0
    page: list[Entry] = []
    for position in span:
        entry = entries[position]
        if everything or match(entry.labels, entry.fields):
            if query.limit and len(page) == query.limit:
                return snapshot, page, span.stop - position
            page.append(entry)
    return snapshot, page, 0


def page(store: Store, kind: Kind, namespace: str, query: Query) -> tuple[Object, list[Entry]]:
    """The metadata of a list, and what is on this page of it."""
    snapshot, page, left = select(store, kind, namespace, query)
    metadata: Object = {"resourceVersion": str(snapshot.revision)}
    if left:
        store.keep(kind.resource, snapshot)
        metadata["continue"] = _encode(Token(TOKEN_VERSION, snapshot.revision, page[-1].key))
        if not query.selective:
            metadata["remainingItemCount"] = left
    return metadata, page


def answer(kind: Kind, metadata: Object, page: list[Entry]) -> bytes:
    """The body of a list."""
    head = f'{{"kind":"{kind.kind}List","apiVersion":"{kind.api_version}","metadata":'.encode()
    items = b",".join([entry.data for entry in page])
    return b"".join((head, msgspec.json.encode(metadata), b',"items":[', items, b"]}\n"))


def _snapshot(store: Store, kind: Kind, query: Query) -> Snapshot:
    if query.revision == 0:
        return store.cached(kind.resource)
    if query.revision is not None and query.revision > store.revision:
        raise status.too_large_version(query.revision, store.revision)
    try:
        return store.snapshot(kind.resource, query.revision if query.exact else None)
    except status.ApiError:
        raise status.expired(status.CONTINUE_EXPIRED if query.after else status.LIST_EXPIRED) from None


def _revision(text: str) -> int | None:
    if not text:
        return None
    if not text.isdecimal():
        why = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise status.bad_request(f"invalid resource version: {why}")
    return int(text)


def _encode(token: Token) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode().rstrip("=")


def _decode(text: str) -> tuple[str, int]:
    try:
        token = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=Token)
    except (ValueError, msgspec.DecodeError) as error:
        raise status.bad_request(f"invalid continue token: continue key is not valid: {error}") from error
    return token.start, token.rv
