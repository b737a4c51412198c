"""`gpushare install-scheduler`: its help page and its options. As in `commands`, the component is imported when it
runs."""

import argparse
import os
import re
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from gpushare.cli.words import Parser
from gpushare.ctl import streams
from gpushare.obs import errors

if TYPE_CHECKING:
    from gpushare.install.app import Wish
    from gpushare.install.store import Store
    from gpushare.kube.auth.login import Access

MANIFEST: Final = "/etc/kubernetes/manifests/kube-scheduler.yaml"
ADMIN: Final = "/etc/kubernetes/admin.conf"  # kubeadm's
URL: Final = "http://127.0.0.1:12345/gpushare-scheduler"
TIMEOUT: Final = 120

PAGE: Final = f"""\
usage: gpushare install-scheduler [--dry-run] [--revert] [options]
Tells the kube-scheduler of this control plane, a static pod, to ask the
extender. Shows the diff, keeps a backup, waits until the scheduler is healthy
and has asked, and puts everything back by itself if not. Run it as root, on one
control plane after the other; as a pod: deploy/install-scheduler.yaml.
  --dry-run           show the diff and change nothing
  --revert            put back the exact manifest from before gpushare
  --extender-url URL  where kube-scheduler finds the extender (default
                      {URL})
  --manifest FILE     (default {MANIFEST})
  --kubernetes-version V   if the image of kube-scheduler does not say it
  --node-name NAME    this machine's node; default NODE_NAME, or its host name
  --timeout SECONDS   how long to wait for the scheduler (default {TIMEOUT})
  --host-root FOLDER  where the machine's / is, in a pod (default /)
  --kubeconfig FILE, --context NAME, --color auto|always|never, --debug
                      (default also {ADMIN})
Examples
  gpushare install-scheduler --dry-run
  gpushare install-scheduler && kubectl gpushare inspect
Exit codes: 0 done or nothing to do, 1 put back as it was, 2 refused, 3 cluster
or extender could not be asked"""


def install_scheduler(words: list[str], program: str, plugin: bool) -> int:
    parser = Parser(program)
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--revert", action="store_true")
    parser.add_argument("--extender-url", default=URL)
    parser.add_argument("--manifest", default=MANIFEST)
    parser.add_argument("--kubernetes-version", default="")
    parser.add_argument("--node-name", default=os.environ.get("NODE_NAME") or socket.gethostname().lower())
    parser.add_argument("--timeout", default=str(TIMEOUT))
    parser.add_argument("--host-root", default="/")
    args = parser.parse(words)
    _check(args)

    import asyncio

    from gpushare.install import app
    from gpushare.install.store import Store

    store = Store(Path(args.host_root), args.manifest)
    wish = app.Wish(args.extender_url.rstrip("/"), args.kubernetes_version)
    if args.dry_run:
        _show(_rehearsed(store, wish, revert=args.revert))
        return 0
    access = _access(args)
    with store.locked():
        ended = asyncio.run(_run(args, store, wish, access))
    return 0 if ended is None else 128 + ended


def _check(args: argparse.Namespace) -> None:
    if not _is_url(args.extender_url):
        why = "it has a scheme, a host, and the path under which the extender answers"
        raise errors.UserError(f'"{args.extender_url:.80}" is not the URL of an extender', why, f"--extender-url {URL}")
    for option in ("manifest", "host_root"):
        path = getattr(args, option)
        if not path.startswith("/"):
            name = f"--{option.replace('_', '-')}"
            raise errors.UserError(f'{name} "{path:.80}" is not a whole path', "it begins with /", f"{name} /...")
    if not re.fullmatch(r"[1-9][0-9]{0,4}", args.timeout):
        raise errors.UserError(f'"{args.timeout:.20}" is not a time to wait', "it is in seconds", "--timeout 120")


def _is_url(text: str) -> bool:
    """Of an extender: with the path under which it answers."""
    try:
        parts = urlsplit(text)
        whole = parts.hostname and parts.path.strip("/") and parts.port != 0  # a port that is none raises ValueError
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(whole) and text.isprintable() and " " not in text


def _rehearsed(store: "Store", wish: "Wish", *, revert: bool) -> str:
    from gpushare.install import app

    if revert:
        back = app.reverting(store, wish)
        shown = back.diff() if back is not None else ""
    else:
        plan = app.planned(store, wish)
        for note in plan.notes:
            _say(note)
        shown = plan.diff()
    _say("dry run: nothing was changed" if shown else "nothing to do")
    return shown


def _access(args: argparse.Namespace) -> "Access | None":
    """None: a revert works without a cluster."""
    from gpushare.kube.auth import login
    from gpushare.kube.errors import NoAccess

    admin = Path(args.host_root) / ADMIN.lstrip("/")
    try:
        return login.load(args.kubeconfig, args.context, os.environ, Path.home())
    except NoAccess as error:
        if not args.kubeconfig and not os.environ.get("KUBECONFIG") and admin.exists():
            return login.load(str(admin), args.context, os.environ, Path.home())
        if not args.revert or args.kubeconfig:
            raise
        _say(f"note: {error.what}: {error.why}")
        return None


async def _run(
    args: argparse.Namespace, store: "Store", wish: "Wish", access: "Access | None"
) -> signal.Signals | None:
    """The signal that ended it; None: it was done."""
    import asyncio

    from gpushare.install import app, proof
    from gpushare.kube import client
    from gpushare.obs import signals

    async def work() -> None:
        if access is None:
            await app.revert(store, wish, None, _show, _say)
            return
        async with client.connect(access) as api:
            control = proof.Control(api, args.node_name, store, float(args.timeout))
            await (app.revert if args.revert else app.install)(store, wish, control, _show, _say)

    received = signals.ending()
    task, signalled = asyncio.create_task(work()), asyncio.create_task(received.get())
    await asyncio.wait((task, signalled), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        signalled.cancel()
        await task
        return None
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return signalled.result()
    return None


def _show(text: str) -> None:
    streams.write(sys.stdout, text)


def _say(text: str) -> None:
    streams.remark(sys.stderr, f"{text}\n")
