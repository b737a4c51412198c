"""The steps of `gpushare install-scheduler`, and of its way back. Each can be the last one before a kill.

Whatever goes wrong after the manifest was replaced, also Ctrl-C, puts the manifest back that was there before.
"""

import contextlib
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from gpushare.install import entries, manifest, plan
from gpushare.install.manifest import Manifest
from gpushare.install.plan import Plan
from gpushare.install.proof import NotProven
from gpushare.install.refusals import refused
from gpushare.install.store import ORIGINAL, STATE, Record, Store, digest
from gpushare.obs.errors import UserError

FAILED: Final = 1  # exit code: it was tried, and put back
ANY_VERSION: Final = "1.19"  # where the version does not matter and an image by digest does not say it
Say = Callable[[str], None]


class Control(Protocol):
    async def check(self, plan: Plan) -> None: ...
    async def proven(self, plan: Plan) -> str: ...
    async def back(self, found: Manifest) -> None: ...


class Wish(msgspec.Struct, frozen=True):
    url: str
    version: str = ""  # of kube-scheduler, if its image does not say it


def planned(store: Store, wish: Wish) -> Plan:
    return plan.made(store.manifest(), store.path, wish.url, store.read, wish.version)


async def install(store: Store, wish: Wish, control: Control, show: Say, say: Say) -> None:
    """`show`: what was asked for, the diff; `say`: how it goes."""
    record, wanted = store.record(), planned(store, wish)
    now = digest(wanted.before)
    unproven = record is not None and not record.proven and now == record.after != record.original
    original, previous = _kept(store, record, wanted)
    for note in wanted.notes:
        say(note)
    if wanted.nothing_to_do and not unproven:
        say(f"nothing to do: {store.path} names {wanted.path}, which has the extender")
        return
    show(wanted.diff())
    await control.check(wanted)
    _prepare(store, record, wanted, original, previous)
    if not wanted.nothing_to_do:
        say(f"wrote {wanted.path}; the manifest as it was is kept in {entries.FOLDER}/{STATE}/{ORIGINAL}")
    try:
        if not wanted.nothing_to_do:
            store.move_in(wanted.after, wanted.before)
            say(f"replaced {store.path}; kubelet starts kube-scheduler again")
        say(f"done: {await control.proven(wanted)}")
    except NotProven as error:
        if not _put_back(store, wanted.after, previous, say):
            store.settle()
            way = "see what is in it, then run this again"
            raise UserError(f"{store.path} has changed meanwhile", str(error), way, FAILED) from None
        await _wait_for_old(store, control, say, wish)
        store.settle()
        what = "kube-scheduler was put back as it was"
        raise UserError(what, str(error), "mend that, then run this again", FAILED) from None
    except BaseException:  # also Ctrl-C, and the end of the pod
        _put_back(store, wanted.after, previous, say)
        store.settle()
        raise
    store.settle()


def _prepare(store: Store, record: Record | None, wanted: Plan, original: bytes, previous: bytes) -> None:
    """Backup, record and configuration. A first run that cannot write them leaves nothing."""
    try:
        store.keep(original, previous, wanted.after)
        if not wanted.nothing_to_do:
            store.put(wanted.path, wanted.content)
    except OSError:
        if record is None:
            with contextlib.suppress(OSError):
                store.forget()
        raise


def _kept(store: Store, record: Record | None, wanted: Plan) -> tuple[bytes, bytes]:
    """The manifest as it was before gpushare, and the last one that is known to work."""
    text = wanted.before
    if record is None:
        return text, text
    now = digest(text)
    if now == record.after and not record.proven:
        return store.original(), store.previous()
    if now in (record.after, record.previous):
        return store.original(), text
    if _has_ours(wanted) and not wanted.nothing_to_do:
        raise _changed(store)
    return text, text


async def _wait_for_old(store: Store, control: Control, say: Say, wish: Wish) -> bool:
    try:
        await control.back(manifest.read(store.manifest(), store.path, wish.version or ANY_VERSION))
    except (NotProven, UserError) as error:
        say(f"kube-scheduler does not run yet with its old manifest: {error}")
        return False
    say("kube-scheduler runs as before")
    return True


def _put_back(store: Store, after: bytes, previous: bytes, say: Say) -> bool:
    """Whether the manifest is as it was. One that somebody else has written since is left to him."""
    now = store.manifest()
    if now == after != previous:
        store.move_in(previous, after)
        say(f"put back {store.path} as it was before")
    elif now != previous:
        say(f"{store.path} was written by somebody else meanwhile: it is left as it is")
        return False
    return True


async def revert(store: Store, wish: Wish, control: Control | None, show: Say, say: Say) -> None:
    """Puts back the exact bytes from before gpushare. `control` is None if the cluster cannot be asked."""
    way_back = reverting(store, wish)
    if way_back is None:
        store.forget()
        say(f"nothing to revert: {store.path} is not changed by gpushare")
        return
    show(way_back.diff())
    store.move_in(way_back.after, way_back.before)
    say(f"put back {store.path} as it was before gpushare")
    runs = True
    if control is None:
        say("the cluster cannot be asked: see yourself whether kube-scheduler runs")
    else:
        runs = await _wait_for_old(store, control, say, wish)
    store.forget()
    if not runs:
        why, way = "it has the manifest that it had before gpushare", "kubectl -n kube-system describe pod"
        raise UserError("kube-scheduler does not run", why, way, FAILED)


class WayBack(msgspec.Struct, frozen=True):
    name: str
    before: bytes
    after: bytes

    def diff(self) -> str:
        return plan.unified(self.before.decode(), self.after.decode(), self.name, self.name)


def reverting(store: Store, wish: Wish) -> WayBack | None:
    """What a revert would change; None: nothing."""
    record, text = store.record(), store.manifest()
    now = digest(text)
    if record is not None and now == record.original:
        return None
    if record is not None and now in (record.after, record.previous):
        original = store.original()
        if digest(original) != record.original:
            why = f"{entries.FOLDER}/{STATE}/{ORIGINAL} is not what was put there"
            raise refused("the backup was changed", why, "remove flag, mount and volume from the manifest by hand")
        return WayBack(store.path, text, original)
    if not _has_ours(planned(store, wish)):
        return None  # somebody, such as kubeadm upgrade, has written a manifest without us
    if record is None:
        why = f"there is no backup in {entries.FOLDER}/{STATE}: it was changed by hand, or on another machine"
        raise refused(f"{store.path} was not changed by this command", why, "remove flag, mount and volume by hand")
    raise _changed(store)


def _has_ours(wanted: Plan) -> bool:
    """Whether the manifest, as it is, names a file of ours."""
    value = wanted.manifest.flag(wanted.flag)
    return value is not None and value.startswith(f"{entries.FOLDER}/")


def _changed(store: Store) -> UserError:
    backup = f"{entries.FOLDER}/{STATE}/{ORIGINAL}"
    why = "somebody has changed it since gpushare did, and the backup has not that change"
    way = f"write that change into {backup} too, copy it to {store.path}, and run this again"
    return refused(f"{store.path} is not as gpushare left it", why, way)
