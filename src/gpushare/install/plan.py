"""What would be changed: the manifest, and the configuration that it names. Nothing is written here.

The configuration's file name has a part of its digest. So a file is never changed while a scheduler reads it, the flag
changes whenever the content does (kubelet then starts the scheduler anew), and the pod in the API server says by its
flag which configuration runs.
"""

import difflib
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import Final

import msgspec
import yaml

from gpushare.install import configuration, edit, manifest
from gpushare.install.entries import FOLDER, Object
from gpushare.install.manifest import Manifest

CONFIG, POLICY = "config", "policy-config-file"  # flags of kube-scheduler
HEADER: Final = "# Made by gpushare install-scheduler{source}. Run it again to change this, do not write here.\n"


class Plan(msgspec.Struct, frozen=True):
    manifest: Manifest  # as it was
    before: bytes  # the manifest
    after: bytes
    path: str  # of the configuration, on the machine
    content: bytes  # of the configuration
    flag: str  # of kube-scheduler, by its name
    value: str  # of that flag, as the pod will have it
    url: str  # of the extender
    scheduler: str  # its name, for pods
    lease: tuple[str, str]  # by which several of them lead: namespace and name
    source: str  # the configuration it had; empty: none
    source_text: str
    notes: Sequence[str]

    @property
    def nothing_to_do(self) -> bool:
        return self.before == self.after

    def diff(self) -> str:
        """For people, as `diff -u` prints it."""
        shown = unified(self.before.decode(), self.after.decode(), self.manifest.name, self.manifest.name)
        if self.nothing_to_do:
            return shown
        return shown + unified(self.source_text, self.content.decode(), self.source or "/dev/null", self.path)


def made(text: bytes, name: str, url: str, read: Callable[[str], bytes], version: str = "") -> Plan:
    """`text` and `name` of the manifest; `read`: a file of the machine, by its path there."""
    found = manifest.read(text, name, version)
    flag = next((one for one in (CONFIG, POLICY) if found.flag(one) is not None), "")
    if not flag:
        policy = configuration.is_policy(found.version, configured=False)
        content = configuration.new(found.version, found.words, url)
        return _plan(found, text, POLICY if policy else CONFIG, content, url)
    path = str(found.flag(flag))
    source = found.host_path(path)
    there = read(source)
    existing = manifest.parsed(there, source)
    content, notes = configuration.merged(existing, url, source)
    if content == existing:
        scheduler, lease = configuration.scheduler_name(content), configuration.lease(content, found.words)
        return Plan(found, text, text, source, there, flag, path, url, scheduler, lease, source, there.decode(), notes)
    return _plan(found, text, flag, content, url, source, there.decode(), notes)


def _plan(
    found: Manifest,
    text: bytes,
    flag: str,
    content: Object,
    url: str,
    source: str = "",
    source_text: str = "",
    notes: Sequence[str] = (),
) -> Plan:
    policy = content["kind"] == "Policy"
    origin = "" if not source or PurePosixPath(source).is_relative_to(FOLDER) else f" from {source}"
    written = json.dumps(content, indent=2) + "\n" if policy else _yaml(content, origin)
    digest = hashlib.sha256(written.encode()).hexdigest()[:8]
    path = f"{FOLDER}/policy-{digest}.json" if policy else f"{FOLDER}/scheduler-{digest}.yaml"
    after = edit.edited(text, found, flag, path)
    scheduler, lease = configuration.scheduler_name(content), configuration.lease(content, found.words)
    return Plan(
        found, text, after, path, written.encode(), flag, path, url, scheduler, lease, source, source_text, tuple(notes)
    )


def _yaml(content: Object, origin: str) -> str:
    return HEADER.format(source=origin) + yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=1000)


def unified(before: str, after: str, old: str, new: str) -> str:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), old, new, lineterm="")
    return "".join(f"{line}\n" for line in lines)
