"""What changed since the last look: how controllers and kubelet follow the store."""

import asyncio

from gpushare.devcluster.apiserver.store import Entry, Store
from gpushare.devcluster.apiserver.watching import Hub
from gpushare.devcluster.following import Follower
from tests.support.api_client import Object
from tests.support.wait import PATIENCE


def _obj(name: str, uid: str = "", **more: str) -> Object:
    return {"metadata": {"name": name, "uid": uid or name}, **more}


def _store() -> tuple[Store, Hub]:
    store, hub = Store(), Hub()
    store.changed = hub.wake
    return store, hub


async def _seen(follower: Follower) -> list[tuple[str, str | None, str | None]]:
    async with asyncio.timeout(PATIENCE):
        found = await follower.differences()
    return [(d.resource, _uid(d.before), _uid(d.after)) for d in found]


def _uid(entry: Entry | None) -> str | None:
    return entry.uid if entry else None


async def test_each_look_shows_what_is_new_changed_or_gone_since_the_last() -> None:
    store, hub = _store()
    store.create("pods", "a", _obj("a"))
    store.create("nodes", "n", _obj("n"))
    store.create("events", "e", _obj("e"))
    follower = Follower(store, hub, ("nodes", "pods"))
    assert await _seen(follower) == [("nodes", None, "n"), ("pods", None, "a")]
    store.update("pods", "a", _obj("a", colour="red"))
    store.create("pods", "b", _obj("b"))
    store.delete("nodes", "n")
    assert await _seen(follower) == [("nodes", "n", None), ("pods", "a", "a"), ("pods", None, "b")]


async def test_what_came_and_went_in_between_is_not_seen() -> None:
    store, hub = _store()
    follower = Follower(store, hub, ("pods",))
    store.create("pods", "a", _obj("a"))
    store.delete("pods", "a")
    store.create("pods", "b", _obj("b"))
    assert await _seen(follower) == [("pods", None, "b")]


async def test_another_object_of_the_same_name_goes_and_comes() -> None:
    store, hub = _store()
    follower = Follower(store, hub, ("pods",))
    store.create("pods", "a", _obj("a", "first"))
    await _seen(follower)
    store.delete("pods", "a")
    store.create("pods", "a", _obj("a", "second"))
    assert await _seen(follower) == [("pods", "first", None), ("pods", None, "second")]


async def test_a_look_waits_for_a_change_and_nobody_is_kept_waiting_twice() -> None:
    store, hub = _store()
    follower = Follower(store, hub, ("nodes", "pods"))
    looking = asyncio.create_task(_seen(follower))
    await asyncio.sleep(0)
    store.create("events", "e", _obj("e"))
    await asyncio.sleep(0)
    assert not looking.done()
    store.create("pods", "a", _obj("a"))
    assert await looking == [("pods", None, "a")]
    assert not any(hub._sleepers.values()), "who was woken by one resource does not stay with the other"


async def test_a_backup_that_is_loaded_is_seen_as_it_is() -> None:
    store, hub = _store()
    follower = Follower(store, hub, ("pods",))
    store.create("pods", "a", _obj("a"))
    await _seen(follower)
    store.load([("pods", "b", _obj("b"))])
    assert await _seen(follower) == [("pods", None, "b")]
