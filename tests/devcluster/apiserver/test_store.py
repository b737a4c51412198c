"""The store keeps versions, history and snapshots, all of them bounded."""

import pytest

from gpushare.devcluster.apiserver import status
from gpushare.devcluster.apiserver.store import Store


def _obj(name: str, **data: str) -> status.Object:
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "data": data}


def test_every_write_of_any_resource_gets_the_next_revision() -> None:
    store = Store()
    first = store.create("a", "x", _obj("x"))
    second = store.create("b", "x", _obj("x"))
    assert second.revision == first.revision + 1 == store.revision
    assert store.delete("a", "x").revision == store.revision == second.revision + 1


def test_an_entry_never_changes() -> None:
    store = Store()
    entry = store.create("a", "x", _obj("x", n="1"))
    entry.obj()["data"]["n"] = "changed by a reader"
    changed = entry.obj()
    changed["data"]["n"] = "2"
    store.update("a", "x", changed)
    assert entry.obj()["data"] == {"n": "1"}


def test_a_snapshot_is_in_key_order_and_knows_namespaces() -> None:
    store = Store()
    for key in ("b/x", "a-b/x", "a/y", "a/x", "c/x"):
        store.create("a", key, _obj(key[-1]))
    snapshot = store.snapshot("a")
    assert [entry.key for entry in snapshot.entries] == ["a-b/x", "a/x", "a/y", "b/x", "c/x"]
    assert [snapshot.entries[i].key for i in snapshot.span("a")] == ["a/x", "a/y"]
    assert [snapshot.entries[i].key for i in snapshot.span("a", "a/x")] == ["a/y"]
    assert [snapshot.entries[i].key for i in snapshot.span("", "a/y")] == ["b/x", "c/x"]
    assert snapshot.find("a/x") is snapshot.entries[1]
    assert snapshot.find("a/z") is None


def test_only_the_last_snapshots_are_kept() -> None:
    store = Store(snapshots=2)
    kept = []
    for name in "xyz":
        store.create("a", name, _obj(name))
        kept.append(store.snapshot("a"))
        store.keep("a", kept[-1])
    store.create("a", "w", _obj("w"))
    assert len(store.snapshot("a", kept[2].revision).entries) == 3
    with pytest.raises(status.ApiError, match="too old"):
        store.snapshot("a", kept[0].revision)


def test_the_history_is_bounded_and_says_what_it_has_forgotten() -> None:
    store = Store(history=100)
    store.create("a", "x", _obj("x", n="0"))
    start = store.revision
    cursor = store.cursor("a", start)
    assert cursor is not None
    for n in range(1000):
        store.update("a", "x", _obj("x", n=str(n + 1)))
    assert len(store.shelf("a").changes) <= 100
    assert store.cursor("a", start) is None
    assert store.changes_from("a", cursor, 10) is None
    recent = store.cursor("a", store.revision - 5)
    assert recent is not None
    changes = store.changes_from("a", recent, 100)
    assert changes is not None
    assert [change.revision for change in changes] == list(range(store.revision - 4, store.revision + 1))


def test_expiring_the_history_outdates_even_who_was_up_to_date() -> None:
    store = Store()
    store.create("a", "x", _obj("x"))
    revision, cursor = store.revision, store.cursor("a", store.revision)
    assert cursor is not None
    store.expire_history()
    assert store.changes_from("a", cursor, 10) is None
    assert store.cursor("a", revision) is None
    assert store.cursor("never-used-before", revision) is None
    assert store.cursor("a", store.revision) is not None
